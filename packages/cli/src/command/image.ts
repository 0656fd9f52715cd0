/** `image`: what agents are made from. Made from archives of container images and from recipes, listed, removed. */
import type { Command } from "commander";
import type { ImageView } from "@perdure/sdk";
import { openArchive, readRecipe } from "../image-file.ts";
import { beginProgress } from "../progress.ts";
import { formatDuration, formatSize } from "../quantity.ts";
import { addSharedOptions, withSession } from "../session.ts";
import type { SharedOptions } from "../session.ts";
import { pairs, table } from "../table.ts";

interface ImportOptions extends SharedOptions {
  readonly name: string;
  readonly ref?: string;
  /** False: `--no-start`. */
  readonly start: boolean;
}

interface BuildOptions extends SharedOptions {
  readonly name: string;
}

export function addImageCommands(program: Command): void {
  const image = program
    .command("image")
    .description("make, list, show and remove images, which agents are created from")
    .addHelpText(
      "after",
      "\nExamples:\n  docker save app:1 | perdure image import - --name app\n  perdure create a1 --image app",
    );
  addImport(image);
  addBuild(image);
  addList(image);
  addShow(image);
  addRemove(image);
}

function addImport(image: Command): void {
  const command = image
    .command("import")
    .description("make an image from an archive of a container image")
    .argument("<archive>", "file that docker save or skopeo (oci-archive) wrote, or - for stdin")
    .requiredOption("--name <name>", "of the image; stands for the newest one made under it")
    .option("--ref <reference>", "which image, where the archive holds several")
    .option("--no-start", "agents do not start its program by themselves")
    .addHelpText(
      "after",
      "\nExamples:\n  docker save app:1 | perdure image import - --name app\n" +
        "  skopeo copy docker://debian:12 oci-archive:d.tar && perdure image import d.tar --name d12",
    );
  addSharedOptions(command).action(async (archive: string, options: ImportOptions) => {
    const { name, ref, start } = options;
    await withSession(options, async ({ perdure, json, print }) => {
      const progress = beginProgress(json, `Importing image "${name}"`);
      const onProgress = (message: string): void => progress.show(message);
      await using source = await openArchive(archive, (bytes) =>
        progress.show(`${formatSize(bytes)} sent`),
      );
      try {
        const settings = { start, onProgress, ...(ref === undefined ? {} : { ref }) };
        const made = await perdure.images.import(name, source.bytes, settings);
        progress.end();
        print(made, madeText(name, made));
      } finally {
        progress.end();
      }
      return 0;
    });
  });
}

function addBuild(image: Command): void {
  const command = image
    .command("build")
    .description("build an image: the default one with more packages and a finish script")
    .argument("<recipe>", 'JSON file, - for stdin, or "debian": the default image as it is')
    .requiredOption("--name <name>", "of the image; stands for the newest one made under it")
    .addHelpText(
      "after",
      '\nA recipe: {"packages": ["nodejs"], "finish": "echo hello > /etc/motd", "env": {"A": "1"}}\n' +
        "Its scripts run as root on this host. docs/guides/images.md says more.\n\nExample:\n  perdure image build node.json --name node",
    );
  addSharedOptions(command).action(async (recipe: string, options: BuildOptions) => {
    const { name } = options;
    const wanted = recipe === "debian" ? {} : await readRecipe(recipe);
    await withSession(options, async ({ perdure, json, print }) => {
      const progress = beginProgress(json, `Building image "${name}"`);
      try {
        const onProgress = (message: string): void => progress.show(message);
        const made = await perdure.images.build(name, wanted, { onProgress });
        progress.end();
        print(made, madeText(name, made));
      } finally {
        progress.end();
      }
      return 0;
    });
  });
}

function madeText(name: string, { id, bytes, archive }: ImageView): string {
  const notices = (archive?.notices ?? []).map((notice) => `  ${notice}\n`).join("");
  return `Image "${name}" is ${id.slice(0, 12)}: disks from ${formatSize(bytes)}\n${notices}`;
}

function addList(image: Command): void {
  const command = image
    .command("list")
    .description("list images by name")
    .addHelpText("after", "\nExample:\n  perdure image list --json");
  addSharedOptions(command).action(async (options: SharedOptions) => {
    await withSession(options, async ({ perdure, print }) => {
      const images = await perdure.images.list();
      print(images, table([heading, ...images.map(row)]));
      return 0;
    });
  });
}

const heading = ["NAME", "ID", "FROM", "STORED", "AGENTS", "AGE"];

function row({
  id,
  names,
  madeAs,
  archive,
  storedBytes,
  agents,
  createdAtMs,
}: ImageView): string[] {
  return [
    names.length === 0 ? `(${madeAs}, older)` : names.join(","),
    id.slice(0, 12),
    archive === null ? "recipe" : (archive.reference ?? "archive").slice(0, 40),
    formatSize(storedBytes),
    String(agents.length),
    formatDuration(Math.max(0, Date.now() - createdAtMs)),
  ];
}

function addShow(image: Command): void {
  const command = image
    .command("show")
    .description("show an image: how programs run in its agents, and what is in it")
    .argument("<image>", "name or id")
    .addHelpText("after", "\nExample:\n  perdure image show debian");
  addSharedOptions(command).action(async (nameOrId: string, options: SharedOptions) => {
    await withSession(options, async ({ perdure, print }) => {
      const found = await perdure.images.show(nameOrId);
      print(found, pairs(facts(found)));
      return 0;
    });
  });
}

function facts(image: ImageView): [string, string][] {
  const { config, archive } = image;
  const words = (list: readonly string[]): string =>
    list.map((word) => JSON.stringify(word)).join(" ");
  const lines: [string, string | null][] = [
    ["id", image.id],
    ["names", image.names.join(", ") || `none; made as "${image.madeAs}"`],
    ["smallest disk", formatSize(image.bytes)],
    ["stored", formatSize(image.storedBytes)],
    ["kernel", image.kernelVersion],
    ["guest agent", image.guestAgentVersion],
    ["packages", image.packages.length === 0 ? null : String(image.packages.length)],
    ["imported from", archive === null ? null : (archive.reference ?? "an archive")],
    ["configuration", archive?.digest ?? null],
    ["user", config?.user ?? "user"],
    ["folder", config === null ? null : config.cwd],
    [
      "variables",
      config === null
        ? null
        : Object.entries(config.env)
            .map(([name, value]) => `${name}=${value}`)
            .join(" ") || null,
    ],
    ["entrypoint", config === null ? null : words(config.entrypoint) || null],
    ["cmd", config === null ? null : words(config.cmd) || null],
    [
      "starts itself",
      config === null || config.entrypoint.length + config.cmd.length === 0
        ? null
        : config.start
          ? "yes"
          : "no",
    ],
    ["stop signal", config?.stopSignal ?? null],
    ["ports", config?.exposedPorts.join(", ") || null],
    ["volumes", config?.volumes.join(", ") || null],
    ["agents", image.agents.join(", ") || null],
    ...(archive?.notices ?? []).map((notice): [string, string] => ["notice", notice]),
  ];
  return lines.flatMap(([name, value]) => (value === null ? [] : [[name, value]]));
}

function addRemove(image: Command): void {
  const command = image
    .command("remove")
    .description("remove an image that no agent stands on, or one of its names")
    .argument("<image>", "name or id")
    .addHelpText("after", "\nExample:\n  perdure image remove app");
  addSharedOptions(command).action(async (nameOrId: string, options: SharedOptions) => {
    await withSession(options, async ({ perdure, during, print }) => {
      const removal = perdure.images.remove(nameOrId);
      const gone = await during(`Removing image "${nameOrId}"`, removal);
      const { names } = gone;
      const text =
        names.length === 0
          ? `Image "${nameOrId}" is removed\n`
          : `Image "${nameOrId}" is still there as ${names.map((name) => `"${name}"`).join(", ")}\n`;
      print(gone, text);
      return 0;
    });
  });
}
