#!/usr/bin/env python3
"""Writes tests/vectors/images: small JPEG and PNG files of every kind that is read, what Pillow makes of them
(Image.open(...).convert("RGB")), and what Transformers' image processors on Pillow make of that. Pillow 13 or newer: older
ones always resize along rows first.

    .venv/bin/python tools/make_image_vectors.py

expected.safetensors: NAME.rgb [h, w, 3] u8; NAME.pixels.EDGE [3, EDGE, EDGE] fp32 for shortest_edge = crop_size = EDGE;
large.crop [224, 224, 3] u8, the default of CLIP before rescaling; scan.HxW.FILTER [H, W, 3] u8, scan.jpg resized by a
filter of Pillow's number; large.TYPE fp32, every 16th pixel in both dimensions of what TYPE's image processor makes of large.jpg when
its file says nothing. manifest.json names versions and files.
"""
import hashlib
import importlib
import io
import json
import pathlib
import struct
import zlib

import numpy as np
import PIL
import transformers
from PIL import Image, features
from safetensors.numpy import save_file
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

# Tall ones: the height shrinks by more than twice what the width does, by just as much, by less.
SIZES = ((24, 50), (150, 10), (199, 80), (30, 79), (90, 25), (89, 25), (250, 30), (100, 100))
TYPES = {"CLIP": "clip", "ChineseCLIP": "chinese_clip", "Bit": "bit", "Siglip": "siglip", "Blip": "blip", "ViT": "vit",
         "DeiT": "deit", "Pvt": "pvt", "MobileNetV1": "mobilenet_v1"}
FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests/vectors/images"


def picture(width, height, channels, seed):
    """Slopes, edges and noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 90 * np.sin((x * (c + 1) + y * 2) / 9 + c) + 30 * ((x // 7 + y // 5 + c) % 2) for c in range(channels)]
    image = np.stack(planes, -1) + rng.normal(0, 12, (height, width, channels))
    return np.clip(image, 0, 255).astype(np.uint8)


def png(width, height, bits, color, rows, interlaced=False):
    """A PNG of raw rows, or of those of Adam7's seven passes: Pillow writes neither 16-bit RGB nor interlaced files."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    raw = b"".join(b"\0" + row for row in rows)
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, int(interlaced))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def adam7(image):
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        part = image[y0::dy, x0::dx]
        if part.size:
            yield from (row.tobytes() for row in part)


def saved(image, **how):
    out = io.BytesIO()
    image.save(out, **how)
    return out.getvalue()


def files():
    rgb = Image.fromarray(picture(67, 45, 3, 1))
    grey = Image.fromarray(picture(50, 61, 1, 2)[..., 0])
    rgba = Image.fromarray(picture(41, 53, 4, 3), "RGBA")
    for name, sampling in (("444", "4:4:4"), ("422", "4:2:2"), ("420", "4:2:0")):
        yield f"rgb_{name}.jpg", saved(rgb, format="JPEG", quality=85, subsampling=sampling)
    yield "progressive.jpg", saved(rgb, format="JPEG", quality=70, progressive=True)
    yield "restarts.jpg", saved(rgb, format="JPEG", quality=60, restart_marker_blocks=3)
    yield "grey.jpg", saved(grey, format="JPEG", quality=90)
    yield "cmyk.jpg", saved(Image.fromarray(picture(37, 40, 4, 4), "CMYK"), format="JPEG", quality=90)
    turned = Image.Exif()
    turned[0x0112] = 6
    yield "turned.jpg", saved(rgb, format="JPEG", quality=80, exif=turned)
    yield "large.jpg", saved(Image.fromarray(picture(410, 301, 3, 5)), format="JPEG", quality=75)
    yield "rgb.png", saved(rgb, format="PNG")
    yield "rgba.png", saved(rgba, format="PNG")
    yield "grey.png", saved(grey, format="PNG")
    yield "grey_alpha.png", saved(rgba.convert("LA"), format="PNG")
    yield "bits1.png", saved(grey.convert("1"), format="PNG")
    yield "palette.png", saved(rgb.quantize(200), format="PNG")
    yield "palette4.png", saved(rgb.quantize(11), format="PNG", transparency=3, bits=4)
    wide = (np.arange(40 * 33).reshape(33, 40) * 61 % 1000).astype(">u2")
    yield "grey16.png", png(40, 33, 16, 0, [row.tobytes() for row in wide])
    wide = (picture(38, 35, 3, 6).astype(np.uint32) * 251).astype(">u2")
    yield "rgb16.png", png(38, 35, 16, 2, [row.tobytes() for row in wide])
    for bits in (2, 4):
        values = picture(40, 34, 1, 7)[..., 0] >> (8 - bits)
        packed = [np.packbits(((row[:, None] >> np.arange(bits - 1, -1, -1)) & 1).astype(np.uint8)).tobytes() for row in values]
        yield f"grey{bits}.png", png(40, 34, bits, 0, packed)
    image = picture(43, 37, 3, 8)
    yield "interlaced.png", png(43, 37, 8, 2, list(adam7(image)), interlaced=True)
    yield "tall.png", saved(Image.fromarray(picture(9, 200, 3, 9)), format="PNG")
    yield "scan.jpg", saved(Image.fromarray(picture(80, 200, 3, 11)), format="JPEG", quality=80)
    yield "pixel.png", saved(Image.fromarray(picture(1, 1, 3, 10)), format="PNG")


def by_type(rgb):
    """What each type's image processor makes of an image by default."""
    for name, module in TYPES.items():
        module = importlib.import_module(f"transformers.models.{module}.image_processing_pil_{module}")
        processor = getattr(module, f"{name}ImageProcessorPil")()
        yield name, processor(images=rgb, return_tensors="np")["pixel_values"][0][:, ::16, ::16]


def main():
    assert int(PIL.__version__.split(".")[0]) >= 13, f"Pillow must be 13 or newer; got {PIL.__version__}; install it"
    FOLDER.mkdir(parents=True, exist_ok=True)
    expected, listed = {}, {}
    for name, data in files():
        (FOLDER / name).write_bytes(data)
        opened = Image.open(io.BytesIO(data))
        # Transformers 5 would blend what Pillow marks as transparent over white.
        rgb = Image.fromarray(np.asarray(opened.convert("RGB")))
        if name == "large.jpg":
            processor = CLIPImageProcessorPil(do_rescale=False, do_normalize=False)
            crop = processor(images=rgb, return_tensors="np")["pixel_values"][0]
            expected["large.crop"] = np.ascontiguousarray(crop.transpose(1, 2, 0)).astype(np.uint8)
            expected |= {f"large.{type}": pixels for type, pixels in by_type(rgb)}
        else:
            expected[f"{name}.rgb"] = np.asarray(rgb)
            for edge in (24, 50):
                processor = CLIPImageProcessorPil(size={"shortest_edge": edge}, crop_size={"height": edge, "width": edge})
                expected[f"{name}.pixels.{edge}"] = processor(images=rgb, return_tensors="np")["pixel_values"][0]
        if name == "scan.jpg":
            for height, width in SIZES:
                for filter in (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC):
                    expected[f"scan.{height}x{width}.{int(filter)}"] = np.asarray(rgb.resize((width, height), filter))
        listed[name] = {"mode": opened.mode, "size": opened.size, "sha256": hashlib.sha256(data).hexdigest()}
    save_file({key: np.ascontiguousarray(value) for key, value in expected.items()}, FOLDER / "expected.safetensors")
    versions = {"pillow": PIL.__version__, "libjpeg_turbo": features.version("libjpeg_turbo"), "zlib": features.version("zlib"),
                "transformers": transformers.__version__, "numpy": np.__version__}
    (FOLDER / "manifest.json").write_text(
        json.dumps({"made_by": "tools/make_image_vectors.py", "versions": versions, "files": listed}, indent=1) + "\n")


if __name__ == "__main__":
    main()
