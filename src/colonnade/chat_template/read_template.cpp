// See chat_template.h: reads templates from flags and folders.
#include <algorithm>
#include <filesystem>

#include "colonnade/base/files.h"
#include "colonnade/chat_template/chat_template.h"
#include "colonnade/tokenizers/hf_folder.h"

namespace colonnade::chat_template {
namespace {

namespace fs = std::filesystem;

struct Format {
  const char *name, *source;
};

/// Built-in templates that write the text of Megatron's formats of these names and mark the same answers.
constexpr Format kFormats[] = {
    {"identity",
     "{%- for m in messages -%}\n"
     "{%- if m.role == 'assistant' -%}{%- generation -%}{{ m.content }}{%- endgeneration -%}\n"
     "{%- else -%}{{ m.content }}{%- endif -%}\n"
     "{%- endfor -%}"},
    {"nemotron-h-aligned",
     "{%- for m in messages -%}\n"
     "{%- if m.role == 'system' -%}{{ '<SPECIAL_10>System\\n' ~ m.content.strip() ~ '\\n' }}\n"
     "{%- elif m.role == 'user' -%}\n"
     "{{ '<SPECIAL_11>User\\n' ~ m.content.strip() ~ '\\n<SPECIAL_11>Assistant\\n' }}\n"
     "{%- elif m.role == 'assistant' -%}\n"
     "{%- generation -%}{{ m.content.strip() ~ '\\n' }}{%- endgeneration -%}\n"
     "{%- endif -%}\n"
     "{%- endfor -%}"},
    {"nemotron-nano-v2",
     "{%- for m in messages -%}\n"
     "{%- set plain = m.content.replace('/think', '').replace('/no_think', '').strip() -%}\n"
     "{%- if m.role == 'system' -%}{{ '<SPECIAL_10>System\\n' ~ plain ~ '\\n' }}\n"
     "{%- elif m.role == 'user' -%}{{ '<SPECIAL_11>User\\n' ~ plain ~ '\\n' }}\n"
     "{%- elif m.role == 'assistant' -%}{{ '<SPECIAL_11>Assistant\\n' }}\n"
     "{%- generation -%}{{ m.content.strip() ~ '\\n<SPECIAL_12>\\n' }}{%- endgeneration -%}\n"
     "{%- endif -%}\n"
     "{%- endfor -%}"},
};

/// Names and contents of the special tokens in a file.
Variables special_in(const tokenizers::JsonView& json, bool is_map) {
  Variables special;
  const auto put = [&](const std::string& name, const tokenizers::JsonView& token) {
    if (!special.contains(name))
      special.insert_or_assign(name, Value::text(token.is_text() ? token.text() : token.text("content")));
  };
  for (const char* role :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    if (const auto token = json.find(role)) put(role, *token);
  for (const auto& [name, token] : tokenizers::model_specific_tokens(json, is_map)) put(name, token);
  return special;
}

/// The special tokens of a folder. special_tokens_map.json takes precedence, unless tokenizer_config.json has
/// added_tokens_decoder.
Variables special_of(const fs::path& folder) {
  Variables special;
  bool lists_added = false;
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string path = (folder / file).string();
    if (lists_added || !fs::is_regular_file(path)) continue;
    tokenizers::with_json(path, read_file(path), [&](const tokenizers::JsonView& json) {
      const bool is_map = std::string_view(file) == "special_tokens_map.json";
      for (auto& [name, text] : special_in(json, is_map)) special.insert_or_assign(name, text);
      lists_added = json.find("added_tokens_decoder").has_value();
    });
  }
  return special;
}

/// The template, or the one named default of a list.
std::string default_of(const tokenizers::JsonView& templates) {
  if (templates.is_text()) return templates.text();
  for (const tokenizers::JsonView& each : templates.items())
    if (each.text("name") == "default") return each.text("template");
  templates.reject("must hold a template named 'default'");
}

ChatTemplate read_from_folder(const fs::path& folder, const Variables& special) {
  if (const fs::path file = folder / "chat_template.jinja"; fs::is_regular_file(file))
    return {file.string(), read_file(file.string()), special};
  const std::string path = (folder / "tokenizer_config.json").string();
  std::optional<std::string> text;
  if (fs::is_regular_file(path))
    text = tokenizers::with_json(path, read_file(path), [](const tokenizers::JsonView& json) {
      const auto found = json.find("chat_template");
      return found ? std::optional(default_of(*found)) : std::nullopt;
    });
  if (!text)
    throw ConfigError(
        fmt::format("--tokenizer-model must be a folder with chat_template.jinja, or with chat_template "
                    "in tokenizer_config.json; got {} without one; give it by --chat-template FILE",
                    folder.empty() ? "a path" : folder.string()));
  return {path + ": chat_template", *text, special};
}

}  // namespace

ChatTemplate read_template(const TemplateChoice& choice) {
  const fs::path folder = fs::is_directory(choice.model) ? fs::path(choice.model) : fs::path();
  const Variables special = folder.empty() ? Variables() : special_of(folder);
  if (!choice.format.empty() && choice.format != "default") {
    const auto* format =
        std::ranges::find(kFormats, choice.format, [](const Format& f) { return std::string(f.name); });
    if (format == std::end(kFormats))
      throw ConfigError(
          fmt::format("--sft-tokenizer-prompt-format must be default, identity, nemotron-h-aligned or "
                      "nemotron-nano-v2; got '{}'; choose one",
                      choice.format));
    return {fmt::format("format {}", format->name), format->source, special};
  }
  if (choice.template_or_path.empty()) return read_from_folder(folder, special);
  std::error_code ignored;  // the text of a template may be too long for a file name
  if (fs::is_regular_file(choice.template_or_path, ignored))
    return {choice.template_or_path, read_file(choice.template_or_path), special};
  if (choice.template_or_path.find('{') == std::string::npos)
    throw ConfigError(
        fmt::format("--chat-template must be a file, or the text of a template; got '{}'; fix it",
                    choice.template_or_path.substr(0, 80)));
  return {"--chat-template", choice.template_or_path, special};
}

}  // namespace colonnade::chat_template
