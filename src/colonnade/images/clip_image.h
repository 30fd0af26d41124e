// Image preprocessing: resize, crop and normalization of Hugging Face's CLIPImageProcessor with Pillow 13,
// bit for bit.
#pragma once

#include <cstdint>
#include <span>

#include "colonnade/images/image_file.h"
#include "colonnade/images/image_settings.h"

namespace colonnade::images {

/// Size after resizing, before the crop.
ImageSize resized_size(ImageSize image, const ImageSettings& settings);

/// Resizes with a bicubic (a = -0.5) or bilinear filter, widened by the scale for downsampling, with 8-bit
/// intermediate results, then crops. Rows are resized first, unless the height shrinks by more than twice as
/// many pixels as the width; then columns are. Returns [height, width, 3]. Throws DataError for an edge of
/// more than 65,535 pixels before or after resizing. Source: Resample.c of Pillow 13.0; computed only for the
/// cropped region.
RgbImage resize_and_crop(const RgbImage& image, const ImageSettings& settings);

/// Normalizes: out[c, y, x] = (float(rescale * image[y, x, c]) - float(mean[c])) / float(std[c]), in fp32 as
/// NumPy computes it.
void to_pixels(const RgbImage& image, const ImageSettings& settings, std::span<float> out);

}  // namespace colonnade::images
