// An image as a vision model reads it: resized, cropped and normalised as Hugging Face's CLIPImageProcessor
// does with Pillow 13, bit for bit.
#pragma once

#include <cstdint>
#include <span>

#include "colonnade/images/image_file.h"
#include "colonnade/images/image_settings.h"

namespace colonnade::images {

/// The size after resizing, before the crop.
ImageSize resized_size(ImageSize image, const ImageSettings& settings);

/// Bicubic (a = -0.5) or bilinear, widened by the scale when it makes smaller, in 8-bit steps; then the crop.
/// First along rows, unless the height shrinks by more than twice what the width does (in pixels): then along
/// columns first. Returns [height, width, 3]. Throws DataError for an edge of more than 65,535 pixels, before
/// or after. Source: Resample.c of Pillow 13.0; computed for what is cut out alone.
RgbImage resize_and_crop(const RgbImage& image, const ImageSettings& settings);

/// out[c, y, x] = (float(rescale * image[y, x, c]) - float(mean[c])) / float(std[c]), in fp32 as NumPy
/// computes it.
void to_pixels(const RgbImage& image, const ImageSettings& settings, std::span<float> out);

}  // namespace colonnade::images
