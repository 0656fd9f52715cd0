/**
 * The whole QEMU command line, as data. Every guest-visible choice is made here and nowhere else, so
 * that its digest says whether device state can be loaded.
 *
 * - I1 Arguments marked `guest` depend on shape and CPU only: no path, uid, pid or id is among them.
 *   `deviceDigest` is taken of them and is equal on every host that runs the same versioned machine.
 * - I2 Template, spare and cold boot of one spec differ in `host` arguments only, and have the same
 *   RAM blocks and option ROMs: a spare, which never boots, has a stub of its kernel.
 * - I3 Nothing that gives memory back to the host, ever: it would damage bases.
 */
import { digestOf, type Digest, type MachineShape } from "@perdure/protocol";
import { qemuLimits } from "./limit.ts";

export type Accelerator = "tcg" | "kvm";

export const MACHINE_TYPE = "pc-i440fx-7.2";
/** x86-64-v2 as a named model: the same bits under emulation and on any host of the last decade. */
export const CPU_MODEL = "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16,+lahf-lm";
export const LINK_PORT_NAME = "perdure.link.0";

/** Names that the disk graph and the console are spoken of by. */
export const node = { throttle: "top", throttleGroup: "tg0", empty: "empty" } as const;
export const consoleChardev = "console";

export interface Argument {
  readonly flag: string;
  readonly value?: string;
  /** Who can tell: arguments that the guest sees are part of the device digest. */
  readonly seen: "guest" | "host";
}

/** Where this process's files are, and how it is started. */
export interface LaunchPlaces {
  /** `perdure-<home>-<machine>`: how the process is found again. */
  readonly name: string;
  readonly memoryPath: string;
  readonly memoryAccess: "shared" | "private-writable" | "private-read-only";
  readonly monitorPath: string;
  readonly linkPath: string;
  /** `firmware` replaces the BIOS and boots nothing else: used by bare payloads in tests. */
  readonly boot:
    | {
        readonly kind: "kernel";
        readonly kernelPath: string;
        /** Null where nothing boots. */
        readonly initramfsPath: string | null;
        readonly commandLine: string;
      }
    | { readonly kind: "firmware"; readonly path: string };
  /** Waits for device state instead of starting from reset. */
  readonly incoming: boolean;
}

const guest = (flag: string, value?: string): Argument => argument("guest", flag, value);
const host = (flag: string, value?: string): Argument => argument("host", flag, value);

function argument(seen: "guest" | "host", flag: string, value?: string): Argument {
  return value === undefined ? { flag, seen } : { flag, value, seen };
}

/** Everything that the guest can see. */
function deviceArguments(shape: MachineShape): Argument[] {
  return [
    guest("-nodefaults"),
    guest("-no-user-config"),
    guest("-machine", [MACHINE_TYPE, ...machineOptions].join(",")),
    guest("-cpu", CPU_MODEL),
    guest("-smp", `cpus=${shape.cpus},sockets=1,cores=${shape.cpus},threads=1`),
    guest("-m", `size=${shape.memoryBytes / (1024 * 1024)}M`),
    guest("-rtc", "base=utc,clock=host,driftfix=none"),
    // Serial console: a ring inside the VMM, so a guest that floods it fills nothing.
    host("-chardev", `ringbuf,id=${consoleChardev},size=${qemuLimits.consoleRingBytes}`),
    guest("-serial", `chardev:${consoleChardev}`),
    // Tells of panics where the guest has the driver; without it `panic=-1` turns them into resets.
    guest("-device", "pvpanic"),
    // The link comes before the disk on the bus: the guest agent expects it as /dev/vport0p1.
    guest("-device", "virtio-serial-pci,id=serial0,bus=pci.0,addr=0x4,max_ports=2"),
    guest(
      "-device",
      `virtserialport,id=link0,bus=serial0.0,nr=1,chardev=link,name=${LINK_PORT_NAME}`,
    ),
    // The disk's backend is put in later, below the throttle node. A write error stops the VM: it
    // goes on when there is room. A read error is the guest's to see.
    guest(
      "-device",
      `virtio-blk-pci,id=disk0,bus=pci.0,addr=0x5,drive=${node.throttle},num-queues=1,werror=stop,rerror=report`,
    ),
  ];
}

/**
 * Off: whatever is optional. `pit` and `pic` stay, the kernel's start needs them; so does the keyboard
 * controller, through which the kernel resets: without one a reboot or a panic takes 3 s instead of 0.3.
 */
const machineOptions = [
  "usb=off",
  "vmport=off",
  "smm=off",
  "hpet=off",
  "smbus=off",
  "suppress-vmdesc=on",
  "memory-backend=mem",
] as const;

/** The arguments of one process, in order. */
export function launchArguments(
  shape: MachineShape,
  accelerator: Accelerator,
  places: LaunchPlaces,
): Argument[] {
  const { boot } = places;
  const memory = [
    `memory-backend-file,id=mem,size=${shape.memoryBytes}`,
    `mem-path=${escaped(places.memoryPath)}`,
    ...memoryAccess[places.memoryAccess],
    "merge=off,dump=off",
  ].join(",");
  return [
    host("-name", places.name),
    host("-display", "none"),
    host("-S"),
    host(
      "-accel",
      accelerator === "tcg" ? `tcg,tb-size=${qemuLimits.translationBufferMiB}` : "kvm",
    ),
    host("-object", memory),
    host("-object", `throttle-group,id=${node.throttleGroup}`),
    host(
      "-blockdev",
      `driver=null-co,node-name=${node.empty},size=${shape.diskBytes},read-zeroes=on`,
    ),
    host(
      "-blockdev",
      `driver=throttle,node-name=${node.throttle},throttle-group=${node.throttleGroup},file=${node.empty},discard=unmap`,
    ),
    host("-chardev", `socket,id=link,path=${escaped(places.linkPath)},server=on,wait=off`),
    ...deviceArguments(shape),
    host("-global", "migration.send-configuration=off"),
    host("-machine", "mem-merge=off,dump-guest-core=off"),
    // Nothing ever resets inside a VM process.
    host("-action", "reboot=shutdown,shutdown=pause,panic=pause"),
    host("-chardev", `socket,id=monitor,path=${escaped(places.monitorPath)},server=on,wait=off`),
    host("-mon", "chardev=monitor,mode=control"),
    host("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"),
    ...(boot.kind === "firmware"
      ? [host("-bios", boot.path)]
      : [
          host("-kernel", boot.kernelPath),
          ...(boot.initramfsPath === null ? [] : [host("-initrd", boot.initramfsPath)]),
          host("-append", boot.commandLine),
        ]),
    ...(places.incoming ? [host("-incoming", "defer")] : []),
  ];
}

const memoryAccess = {
  shared: ["share=on"],
  "private-writable": ["share=off"],
  "private-read-only": ["share=off", "readonly=on", "rom=off"],
} as const;

export function argv(args: readonly Argument[]): string[] {
  return args.flatMap(({ flag, value }) => (value === undefined ? [flag] : [flag, value]));
}

/** SHA-256 of what the guest can see of the command line. */
export function deviceDigest(shape: MachineShape): Digest {
  return digestOf(argv(deviceArguments(shape).filter(({ seen }) => seen === "guest"))) as Digest;
}

/** QEMU splits option values at commas; a doubled one stands for itself. */
function escaped(path: string): string {
  return path.replaceAll(",", ",,");
}
