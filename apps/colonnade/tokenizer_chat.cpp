// `colonnade tokenizer chat`: conversations as the text and the ids that --sft trains on.
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
  app.add_option("--chat-template", flags.choice.given,
                 "A file or the text of a template; without it the one of the tokenizer's folder");
  app.add_option("--sft-tokenizer-prompt-format", flags.choice.format,
                 "default (a template), identity, nemotron-h-aligned or nemotron-nano-v2");
  app.add_flag("--add-generation-prompt", flags.prompt,
               "Write the text that asks for an answer, and no answers");
  app.add_flag("--ids", flags.ids, "Ids too, and which of them belong to answers; needs a tokenizer");
}

/// {"text", "answers": [text, ...]}, with `tokenizer` also {"ids", "loss": [0 or 1, ...]}.
nlohmann::json shown(const chat_template::Chat& chat, const tokenizers::Tokenizer* tokenizer) {
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

/// As a run with --sft has it; and no flag that nothing would read.
void require_use(const CLI::App& app, const ChatFlags& flags) {
  if (const std::string& type = flags.options.type; type != "HuggingFaceTokenizer" && type != "SFTTokenizer")
    throw ConfigError(fmt::format(
        "--tokenizer-type: with chat messages it must be HuggingFaceTokenizer or SFTTokenizer, whose special tokens "
        "are found in text; got {}; give the folder of a Hugging Face tokenizer",
        type));
  if (flags.ids && flags.prompt)
    throw ConfigError(
        "--ids: tells what answers are learnt, and --add-generation-prompt writes none; got both; leave one out");
  if (flags.ids) return;
  refuse_given(
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
      "Reads one object with messages per line and prints one with its text and answers per line; one with an error "
      "where a line or the template cannot be used, and then exits 3.",
      "tokenizer chat");
  ChatFlags flags;
  add_chat_flags(app, flags);
  if (!read_flags(app, arguments)) return kExitDone;
  require_use(app, flags);
  const std::string& format = flags.choice.format;
  if (!flags.choice.given.empty() && !format.empty() && format != "default")
    throw ConfigError(fmt::format(
        "--chat-template: is read with --sft-tokenizer-prompt-format default; got {}; leave one of them out",
        format));
  flags.choice.model = flags.options.model;
  const auto chat_template = chat_template::read_template(flags.choice);
  const auto tokenizer = flags.ids ? tokenizers::make_tokenizer(flags.options) : nullptr;
  if (tokenizer != nullptr) data::require_marks(format, *tokenizer);
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
        result = shown(chat, tokenizer.get());
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
