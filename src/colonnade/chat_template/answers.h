// The answers in a rendered conversation.
#pragma once

#include <functional>

#include "colonnade/chat_template/chat_template.h"

namespace colonnade::chat_template {

/// Renders another conversation; `prompt`: add_generation_prompt. Throws DataError if the template rejects
/// it.
using RenderChat = std::function<Rendering(const Conversation& conversation, bool prompt)>;

/// The answers of a template with {% generation %} blocks: exactly the text of these blocks.
Chat marked_answers(const Conversation& conversation, Rendering rendering);

/// The answers of a template without {% generation %}, found by provenance, which locates the words of
/// assistant messages in the text.
/// - An answer is the output of the loop iteration that writes the words of one assistant message and of no
/// other
///   message, whatever the loop iterates over. Without such an iteration, it ends where the rendering of the
///   messages up to this one ends.
/// - It starts after the generation prompt: that of the messages before it. For a first message after a
/// system prompt
///   that the template itself writes, it is the generation prompt of the whole conversation.
/// - If only blanks follow the words, the next mark of the template (`<|user|>`, `[INST]`, `</s>`) ends the
/// answer and
///   belongs to it.
/// Throws DataError if the words of an answer are mixed with those of other messages.
Chat find_answers(const Conversation& conversation, Rendering rendering, const RenderChat& render);

}  // namespace colonnade::chat_template
