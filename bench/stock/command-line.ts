/**
 * How a QEMU user would run the same guest: same machine, CPU, devices, kernel, initramfs and disk, its
 * memory plain and anonymous, nothing of ours. Everything that slows QEMU down is left out: no sandbox,
 * no throttle, no user of its own.
 */

export interface StockPlaces {
  readonly kernelPath: string;
  readonly initramfsPath: string;
  readonly commandLine: string;
  /** qcow2 over the image's raw root file system. */
  readonly overlayPath: string;
  readonly monitorPath: string;
  readonly linkPath: string;
  readonly memoryMib: number;
  /** A process that waits for saved state. */
  readonly incoming: boolean;
}

const machine =
  "pc-i440fx-7.2,usb=off,vmport=off,smm=off,hpet=off,i8042=off,smbus=off,graphics=off";
const cpu = "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16,+lahf-lm";

export function stockArguments(places: StockPlaces, accelerator: string): string[] {
  return [
    ...["-nodefaults", "-no-user-config", "-display", "none"],
    ...["-accel", accelerator, "-machine", machine, "-cpu", cpu],
    ...["-smp", "1", "-m", String(places.memoryMib)],
    ...["-chardev", "ringbuf,id=console,size=65536", "-serial", "chardev:console"],
    ...["-device", "pvpanic"],
    ...["-chardev", `socket,id=link,path=${places.linkPath},server=on,wait=off`],
    ...["-device", "virtio-serial-pci,id=serial0,bus=pci.0,addr=0x4,max_ports=2"],
    ...["-device", "virtserialport,bus=serial0.0,nr=1,chardev=link,name=perdure.link.0"],
    ...["-blockdev", `driver=file,node-name=file0,filename=${places.overlayPath}`],
    ...["-blockdev", "driver=qcow2,node-name=disk0,file=file0"],
    ...["-device", "virtio-blk-pci,bus=pci.0,addr=0x5,drive=disk0,num-queues=1"],
    ...["-chardev", `socket,id=monitor,path=${places.monitorPath},server=on,wait=off`],
    ...["-mon", "chardev=monitor,mode=control"],
    ...["-kernel", places.kernelPath, "-initrd", places.initramfsPath],
    ...["-append", places.commandLine],
    ...(places.incoming ? ["-S", "-incoming", "defer"] : []),
  ];
}
