/* The root file system: the agent's disk, or the initramfs itself for tiny test machines. */
#ifndef PERDURE_ROOT_H
#define PERDURE_ROOT_H

/* Mounts the ext4 disk, grows it to the device, makes it the root, frees the initramfs. */
void root_switch(const char *device);
/* What a program expects to find: passwd, group, /tmp, homes. Nothing that exists is changed. */
void root_fill_initramfs(void);

#endif
