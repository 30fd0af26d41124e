// JPEG by libjpeg-turbo; see image_file.h.
#pragma once

#include <span>

#include "colonnade/images/image_file.h"

namespace colonnade::images {

ImageSize jpeg_size(std::span<const char> file);
/// The caller has seen that the size is bearable.
RgbImage read_jpeg(std::span<const char> file);

}  // namespace colonnade::images
