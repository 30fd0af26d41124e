// See tokenizer_chat.cpp.
#pragma once

#include "verbs.h"

namespace colonnade::app {

int tokenizer_chat(const Arguments& arguments);
Offers tokenizer_chat_offers();

}  // namespace colonnade::app
