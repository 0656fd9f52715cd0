"""A tiny real VM around the guest agent: initramfs or an ext4 disk with busybox, QEMU, the port.

What it needs is not in the repository: a kernel package unpacked to a folder (boot/vmlinuz-*,
lib/modules/*) and a static busybox.
"""

import glob
import os
import shutil
import subprocess
import tempfile

from link import Link, connect_unix

HERE = os.path.dirname(os.path.abspath(__file__))
AGENT = os.environ.get("AGENT") or os.path.join(HERE, "..", "build", "perdure-guest")
MODULES = ["virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci",
           "virtio_blk", "virtio_console"]
TOOLS = ["sh", "cat", "echo", "sleep", "ls", "head", "tail", "id", "hostname", "date", "ps", "env",
         "mount", "dd", "df", "kill", "stat", "nice", "yes", "od", "readlink", "wc", "setsid",
         "mkdir", "touch", "rm", "sync", "ip", "cut", "usleep", "printf", "true", "test", "grep", "free", "tty", "stty", "mv"]


class Vm:
    def __init__(self, kernel_folder, busybox, disk_mib=0, options="", memory_mib=256,
                 root_option=True, cpus=1):
        self.folder = tempfile.mkdtemp(prefix="perdure-vm-")
        self.process = None
        kernel = glob.glob(os.path.join(kernel_folder, "boot", "vmlinuz-*"))[0]
        modules = glob.glob(os.path.join(kernel_folder, "lib", "modules", "*"))[0]
        initramfs = self._initramfs(modules, None if disk_mib else busybox)
        self.console_path = os.path.join(self.folder, "console.log")
        self.link_path = os.path.join(self.folder, "link.sock")
        root = "none"
        command = [
            "qemu-system-x86_64",
            "-machine", "pc-i440fx-7.2,usb=off,vmport=off,smm=off,hpet=off",
            "-accel", "tcg,tb-size=64", "-cpu", "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16",
            "-m", str(memory_mib), "-smp", str(cpus), "-nodefaults", "-no-user-config", "-display", "none",
            "-kernel", kernel, "-initrd", initramfs,
            "-serial", f"file:{self.console_path}", "-no-reboot",
            "-monitor", f"unix:{self.folder}/monitor.sock,server=on,wait=off",
            "-device", "virtio-serial-pci",
            "-chardev", f"socket,id=link,path={self.link_path},server=on,wait=off",
            "-device", "virtserialport,chardev=link,name=perdure.link.0",
        ]
        if disk_mib:
            root = "/dev/vda"
            disk = self._disk(busybox, disk_mib)
            command += ["-drive", f"file={disk},format=raw,if=none,id=disk",
                        "-device", "virtio-blk-pci,drive=disk"]
        if root_option:
            options += f" perdure.root={root}"
        command += ["-append", f"console=ttyS0 panic=-1 quiet {options}"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def _tree(self, tree, busybox):
        os.makedirs(os.path.join(tree, "bin"))
        shutil.copy(busybox, os.path.join(tree, "bin", "busybox"))
        for tool in TOOLS:
            os.symlink("busybox", os.path.join(tree, "bin", tool))

    def _initramfs(self, modules, busybox):
        tree = os.path.join(self.folder, "initramfs")
        os.makedirs(os.path.join(tree, "modules"))
        if busybox:
            self._tree(tree, busybox)
        shutil.copy(AGENT, os.path.join(tree, "init"))
        lines = []
        for name in MODULES:
            found = glob.glob(os.path.join(modules, "**", f"{name}.ko*"), recursive=True)
            if found:
                shutil.copy(found[0], os.path.join(tree, "modules"))
                lines.append("/modules/" + os.path.basename(found[0]))
        with open(os.path.join(tree, "modules.list"), "w") as file:
            file.write("\n".join(lines) + "\n")
        archive = tree + ".cpio"
        names = subprocess.run(["find", "."], cwd=tree, check=True, capture_output=True).stdout
        with open(archive, "wb") as out:
            subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=tree, input=names, stdout=out,
                           check=True)
        return archive

    def _disk(self, busybox, disk_mib):
        """A file system of 48 MiB on a larger disk, so that it must be grown."""
        tree = os.path.join(self.folder, "root")
        self._tree(tree, busybox)
        for name in ["etc", "root", "home/user", "tmp", "etc/perdure/resume.d", "var", "sys", "proc"]:
            os.makedirs(os.path.join(tree, name))
        os.chmod(os.path.join(tree, "tmp"), 0o1777)
        os.chown(os.path.join(tree, "home/user"), 1000, 1000)
        files = {
            "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n",
            "etc/group": "root:x:0:\nuser:x:1000:\nwheel:x:50:root,user\n",
            "etc/hostname": "from-disk\n",
        }
        for name, text in files.items():
            with open(os.path.join(tree, name), "w") as file:
                file.write(text)
        image = os.path.join(self.folder, "disk.img")
        subprocess.run(["mkfs.ext4", "-q", "-d", tree, image, "48M"], check=True)
        os.truncate(image, disk_mib << 20)
        return image

    def console(self):
        with open(self.console_path, errors="replace") as file:
            return file.read()

    def connect(self):
        return Link(connect_unix(self.link_path))

    def monitor(self, command):
        """One command of QEMU's monitor, such as `stop` or `cont`."""
        with connect_unix(os.path.join(self.folder, "monitor.sock")) as sock:
            sock.settimeout(5)
            answer = b""
            while not answer.endswith(b"(qemu) "):
                answer += sock.recv(4096)
            sock.sendall(command.encode() + b"\n")
            answer = b""
            while not answer.endswith(b"(qemu) "):
                answer += sock.recv(4096)

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
