// Which part of a rendered conversation are answers.
#pragma once

#include <functional>

#include "colonnade/chat_template/chat_template.h"

namespace colonnade::chat_template {

/// The template's text of another conversation; `prompt`: with add_generation_prompt. Throws DataError where
/// the template rejects it.
using RenderChat = std::function<Rendering(const Conversation& conversation, bool prompt)>;

/// Answers are what {% generation %} encloses, no more and no less.
Chat marked_answers(const Conversation& conversation, Rendering rendering);

/// Answers of a template without such marks. Provenance tells where the words of a message of the assistant
/// are. An answer is the iteration of a loop that writes these words and no others, whatever the loop goes
/// over; where no loop does, it ends where the conversation up to this message does. It begins behind the
/// text that asks for it (add_generation_prompt on the messages before it, or on all where it is the first
/// and the template writes a system prompt of its own before it). Where nothing but blanks follows
/// the words, the mark that the template writes next (`<|user|>`, `[INST]`, `</s>`) closes the answer and
/// belongs to it. Throws DataError where the words of an answer are mixed with those of other messages.
Chat find_answers(const Conversation& conversation, Rendering rendering, const RenderChat& render);

}  // namespace colonnade::chat_template
