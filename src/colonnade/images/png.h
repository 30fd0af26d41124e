// PNG by libpng; see image_file.h.
#pragma once

#include <span>

#include "colonnade/images/image_file.h"

namespace colonnade::images {

ImageSize png_size(std::span<const char> file);
/// The caller has seen that the size is bearable.
RgbImage read_png(std::span<const char> file);

}  // namespace colonnade::images
