// `colonnade data images`.
#pragma once

#include "verbs.h"

namespace colonnade::app {

int data_images(const Arguments& arguments);
Offers data_images_offers();

}  // namespace colonnade::app
