// Chat templates: conversations as the text that a model reads, and which of it are answers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/chat_template/renderer.h"

namespace colonnade::chat_template {

/// A conversation: what a line of a data set holds under `messages`, `tools`, `documents` and
/// `chat_template_kwargs`, whose members are variables of the template.
struct Conversation {
  Value messages;
  std::vector<std::string> roles;  ///< of each message
  Variables others;
};

/// Reads it from an object of JSON. As Transformers does, members of messages that are null are left out, and
/// reasoning under `reasoning_content`, `thinking` or `reasoning`
/// is found under the first two. Throws DataError that says what is missing: messages are objects with a
/// role.
Conversation read_conversation(std::string_view line);

struct Chat {
  std::string text;
  std::vector<Span> answers;  ///< in their order, none empty
  std::size_t unended = 0;    ///< answers in which nothing follows the message's own words
};

/// A template, in the subset of Jinja that docs/formats/chat_template.md lists, rendered as by Transformers.
/// Const functions are safe to call from many threads.
class ChatTemplate {
 public:
  /// `name` stands in errors. `special`: bos_token, eos_token, ... of the tokenizer. Throws DataError, with
  /// the line of the template, for what is not understood.
  ChatTemplate(std::string name, std::string_view source, Variables special);

  /// Throws DataError, with the line of the template.
  [[nodiscard]] Rendering render(const Conversation& conversation, bool add_generation_prompt) const;

  /// The text and its answers: what the template marks by {% generation %}; without such marks, what
  /// answers.h finds. Throws DataError, also where there is no answer.
  [[nodiscard]] Chat chat(const Conversation& conversation) const;

  [[nodiscard]] const std::string& source() const { return source_; }

 private:
  std::string name_, source_;
  Body body_;
  Variables special_;
  bool marks_ = false;  // whether it has {% generation %}
};

/// Which template a run takes.
struct TemplateChoice {
  std::string model;        ///< --tokenizer-model
  std::string given;        ///< --chat-template: a file or the text itself; "": the one of the folder
  std::string format = {};  ///< --sft-tokenizer-prompt-format; "": default
};

/// Of a folder: chat_template.jinja, or chat_template of tokenizer_config.json (of named ones `default`).
/// Other formats than `default` are templates of ours that render as Megatron's. Throws ConfigError where
/// there is none, DataError for a damaged file.
ChatTemplate read_template(const TemplateChoice& choice);

}  // namespace colonnade::chat_template
