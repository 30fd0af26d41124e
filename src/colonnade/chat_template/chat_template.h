// Chat templates: they render a conversation as text for the model and locate its answers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/chat_template/renderer.h"

namespace colonnade::chat_template {

/// A conversation of a data set: its `messages`, and the template variables `tools`, `documents` and the
/// members of `chat_template_kwargs`.
struct Conversation {
  Value messages;
  std::vector<std::string> roles;  ///< role of each message
  Variables variables;
};

/// Reads a conversation from a JSON object. As in Transformers, null members of messages are dropped, and
/// reasoning under `reasoning_content`, `thinking` or `reasoning` is available under the first two names.
/// Throws DataError that names the missing or invalid member.
Conversation read_conversation(std::string_view line);

struct Chat {
  std::string text;
  std::vector<Span> answers;  ///< in order of the text, none empty
  std::size_t unended = 0;    ///< answers without an ending: nothing follows the words of the message
};

/// A template in the subset of Jinja that docs/formats/chat_template.md lists, rendered as in Transformers.
/// Const functions are thread-safe.
class ChatTemplate {
 public:
  /// `name`: for errors. `special`: bos_token, eos_token, ... of the tokenizer. Throws DataError with the
  /// line of the template for invalid or unsupported Jinja.
  ChatTemplate(std::string name, std::string_view source, Variables special);

  /// Throws DataError with the line of the template if rendering fails.
  [[nodiscard]] Rendering render(const Conversation& conversation, bool add_generation_prompt) const;

  /// The text and its answers: the {% generation %} blocks, or without these the answers that answers.h
  /// finds. Throws DataError if rendering fails or there is no answer.
  [[nodiscard]] Chat chat(const Conversation& conversation) const;

  [[nodiscard]] const std::string& source() const { return source_; }

 private:
  std::string name_, source_;
  Body body_;
  Variables special_;
  bool has_generation_ = false;  ///< whether it has {% generation %}
};

/// The choice of a template by flags.
struct TemplateChoice {
  std::string model;             ///< --tokenizer-model
  std::string template_or_path;  ///< --chat-template: a file or the text; empty for that of the folder
  std::string format = {};       ///< --sft-tokenizer-prompt-format; empty is default
};

/// Reads the chosen template. In a folder it is chat_template.jinja, or chat_template of
/// tokenizer_config.json (the one named `default` of a list). Formats other than `default` are built-in
/// templates that render as Megatron does. Throws ConfigError if there is no template, DataError for a
/// damaged file.
ChatTemplate read_template(const TemplateChoice& choice);

}  // namespace colonnade::chat_template
