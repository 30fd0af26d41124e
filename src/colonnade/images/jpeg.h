// JPEG decoder based on libjpeg-turbo; see image_file.h.
#pragma once

#include <span>

#include "colonnade/images/image_file.h"

namespace colonnade::images {

ImageSize jpeg_size(std::span<const char> file);
/// Precondition: the caller has checked the size.
RgbImage read_jpeg(std::span<const char> file);

}  // namespace colonnade::images
