// `colonnade tokenizer chat`: prints the text and ids of conversations as --sft trains on them.
#include "tokenizer_chat.h"
#include "colonnade/base/error.h"
#include "colonnade/data/samples/sft/sft_batches.h"
#include "colonnade/data/samples/sft/sft_conversations.h"
#include "flags.h"
#include "tokenizer_flags.h"
#include "verbs.h"

#include <array>
#include <iostream>
#include <nlohmann/json.hpp>

namespace colonnade::app {
namespace {

struct ChatFlags {
  tokenizers::TokenizerOptions options{.type = "HuggingFaceTokenizer"};
  chat_template::TemplateChoice choice;
  bool prompt = false, ids = false;
};

void add_chat_flags(CLI::App& app, ChatFlags& flags) {
  add_tokenizer_flags(app, flags.options);
  app.add_option("--chat-template", flags.choice.template_or_path,
                 "File or text of a chat template (default: that of the tokenizer's folder)");
  app.add_option("--sft-tokenizer-prompt-format", flags.choice.format,
                 "default (the chat template), identity, nemotron-h-aligned or nemotron-nano-v2");
  app.add_flag("--add-generation-prompt", flags.prompt, "Append the generation prompt, and print no answers");
  app.add_flag("--ids", flags.ids, "Also print ids and a mask of those with a loss; requires a tokenizer");
}

/// {"text", "answers": [text, ...]}; with a tokenizer also {"ids", "loss": [0 or 1, ...]}.
nlohmann::json to_json(const chat_template::Chat& chat, const tokenizers::Tokenizer* tokenizer) {
  nlohmann::json result = {{"text", chat.text}, {"answers", nlohmann::json::array()}};
  for (const auto& [begin, end] : chat.answers)
    result["answers"].push_back(chat.text.substr(begin, end - begin));
  if (tokenizer == nullptr) return result;
  result["ids"] = result["loss"] = nlohmann::json::array();
  for (const std::int32_t id : data::marked_ids(chat, *tokenizer)) {
    result["ids"].push_back(id < 0 ? ~id : id);
    result["loss"].push_back(id < 0 ? 1 : 0);
  }
  return result;
}

/// Throws ConfigError for a tokenizer that --sft rejects, and for flags without effect.
void check_flags(const CLI::App& app, const ChatFlags& flags) {
  if (const std::string& type = flags.options.type; type != "HuggingFaceTokenizer" && type != "SFTTokenizer")
    throw ConfigError(fmt::format(
        "--tokenizer-type must be HuggingFaceTokenizer or SFTTokenizer for chat messages, because only these match "
        "special tokens in text; got {}; give the folder of a Hugging Face tokenizer",
        type));
  if (flags.ids && flags.prompt)
    throw ConfigError(
        "--ids must be given without --add-generation-prompt, which prints no answers; got both; remove one");
  if (flags.ids) return;
  reject_given(
      app,
      std::array{"--vocab-file", "--merge-file", "--vocab-size", "--tokenizer-hf-no-include-special-tokens",
                 "--tiktoken-pattern", "--tiktoken-num-special-tokens"},
      "--ids");
}

}  // namespace

Offers tokenizer_chat_offers() {
  CLI::App app;
  ChatFlags flags;
  add_chat_flags(app, flags);
  return offers_of(app, "tokenizer", "chat");
}

int tokenizer_chat(const Arguments& arguments) {
  CLI::App app(
      "Reads one object with messages per line and prints one with its text and answers per line. A line that cannot "
      "be rendered gives an object with an error, and exit code 3.",
      "tokenizer chat");
  ChatFlags flags;
  add_chat_flags(app, flags);
  if (!read_flags(app, arguments)) return kExitDone;
  check_flags(app, flags);
  const std::string& format = flags.choice.format;
  if (!flags.choice.template_or_path.empty() && !format.empty() && format != "default")
    throw ConfigError(fmt::format(
        "--chat-template requires --sft-tokenizer-prompt-format default; got {}; remove one of the flags",
        format));
  flags.choice.model = flags.options.model;
  const auto chat_template = chat_template::read_template(flags.choice);
  const auto tokenizer = flags.ids ? tokenizers::make_tokenizer(flags.options) : nullptr;
  if (tokenizer != nullptr) data::require_chat_tokens(format, *tokenizer);
  int code = kExitDone;
  std::int64_t answers = 0, unended = 0;
  for (std::string line; std::getline(std::cin, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    nlohmann::json result;
    try {
      const auto conversation = chat_template::read_conversation(line);
      if (flags.prompt) {
        result = {{"text", chat_template.render(conversation, true).text}};
      } else {
        const chat_template::Chat chat = chat_template.chat(conversation);
        result = to_json(chat, tokenizer.get());
        answers += std::ssize(chat.answers);
        unended += static_cast<std::int64_t>(chat.unended);
      }
    } catch (const DataError& e) {
      result = {{"error", e.what()}};
      code = kExitData;
    }
    std::cout << result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  }
  std::cout.flush();
  data::warn_of_unended_answers("tokenizer chat", answers, unended);
  return code;
}

}  // namespace colonnade::app
