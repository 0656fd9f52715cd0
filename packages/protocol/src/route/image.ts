/** Images. */
import { z } from "zod";
import {
  buildRequestSchema,
  imageEventSchema,
  imageRefSchema,
  imagesResponseSchema,
  imageViewSchema,
  importImageQuerySchema,
} from "../image.ts";
import { bytes, json, lines } from "./route.ts";
import type { ApiRoute } from "./route.ts";

const image = z.object({ image: imageRefSchema });

export const imageRoutes = {
  images: {
    method: "GET",
    path: "/v1/images",
    summary: "List the images on this host.",
    status: 200,
    answers: [json(imagesResponseSchema)],
    mutates: false,
    scope: "read",
  },
  image: {
    method: "GET",
    path: "/v1/images/:image",
    summary: "Show an image with its packages.",
    params: image,
    status: 200,
    answers: [json(imageViewSchema)],
    mutates: false,
    scope: "read",
  },
  importImage: {
    method: "POST",
    path: "/v1/images",
    summary:
      "Make an image from an archive of a container image (oci-archive, docker save); ends with `image` or `error`.",
    query: importImageQuerySchema,
    body: bytes,
    status: 201,
    answers: [lines(imageEventSchema)],
    mutates: true,
    repeat: "again",
    scope: "admin",
  },
  buildImage: {
    method: "POST",
    path: "/v1/images/build",
    summary: "Build an image from a recipe; ends with `image` or `error`.",
    body: json(buildRequestSchema),
    status: 201,
    answers: [lines(imageEventSchema)],
    mutates: true,
    repeat: "again",
    scope: "admin",
  },
  removeImage: {
    method: "DELETE",
    path: "/v1/images/:image",
    summary: "Remove an image that no agent stands on, or one of its names.",
    params: image,
    status: 200,
    answers: [json(imageViewSchema)],
    mutates: true,
    scope: "admin",
  },
} as const satisfies Record<string, ApiRoute>;
