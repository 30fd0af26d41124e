// PNG decoder based on libpng; see image_file.h.
#pragma once

#include <span>

#include "colonnade/images/image_file.h"

namespace colonnade::images {

ImageSize png_size(std::span<const char> file);
/// Precondition: the caller has checked the size.
RgbImage read_png(std::span<const char> file);

}  // namespace colonnade::images
