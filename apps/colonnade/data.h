// Sub-verbs of `colonnade data` with source files of their own.
#pragma once

#include "verbs.h"

namespace colonnade::app {

int data_inspect(const Arguments& arguments);
int data_audit(const Arguments& arguments);
Offers data_inspect_offers();
Offers data_audit_offers();

}  // namespace colonnade::app
