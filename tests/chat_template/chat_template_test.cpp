// Chat templates: texts of Transformers, answer masks, and hostile or unsupported templates.
#include "colonnade/chat_template/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "colonnade/base/error.h"
#include "colonnade/data/samples/sft/sft_conversations.h"
#include "support/files.h"

namespace colonnade::chat_template {
namespace {

using json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Lines of a vector file; objects keep the order of their keys.
std::vector<json> lines_of(const std::string& name) {
  std::ifstream file(test::vector_path("chat/" + name));
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

ChatTemplate template_of(const std::string& name, const char* bos = nullptr) {
  Variables special;
  const json manifest = json::parse(read_file(test::vector_path("chat/manifest.json")));
  for (const auto& [key, value] : manifest["special"].items())
    special.insert_or_assign(key, Value::text(value.get<std::string>()));
  if (bos != nullptr) special.insert_or_assign("bos_token", Value::text(bos));
  return {name, read_file(test::vector_path("chat/templates/" + name + ".jinja")), special};
}

std::vector<std::string> answers_of(const Chat& chat) {
  std::vector<std::string> texts;
  for (const Span& span : chat.answers) texts.push_back(chat.text.substr(span.begin, span.end - span.begin));
  return texts;
}

constexpr const char* kTalk =
    R"({"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"},)"
    R"( {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "Yes"}]})";

std::string rendered(const std::string& source, bool prompt = false) {
  return ChatTemplate("T", source, {}).render(read_conversation(kTalk), prompt).text;
}

std::string error_of(const std::string& source) {
  return test::message_of<DataError>([&] { (void)rendered(source); });
}

TEST(ChatTemplate, MatchesTransformers) {
  const std::vector<json> chats = lines_of("conversations.jsonl");
  std::map<std::string, ChatTemplate> templates;
  int written = 0, rejected = 0;
  for (const json& expected : lines_of("expected.jsonl")) {
    const std::string name = expected["template"];
    const ChatTemplate& each = templates.try_emplace(name, template_of(name)).first->second;
    const Conversation chat = read_conversation(chats.at(expected["chat"].get<std::size_t>()).dump());
    if (expected["text"].is_null()) {
      EXPECT_THROW((void)each.render(chat, expected["prompt"]), DataError) << expected;
      ++rejected;
      continue;
    }
    EXPECT_EQ(each.render(chat, expected["prompt"]).text, expected["text"].get<std::string>()) << expected;
    ++written;
    if (expected["answers"].is_array() && !expected["answers"].empty()) {
      EXPECT_EQ(answers_of(each.chat(chat)), expected["answers"].get<std::vector<std::string>>());
    }
  }
  EXPECT_GT(written, 300);
  EXPECT_GT(rejected, 100);
}

TEST(ChatTemplate, ExpressionsMatchJinjaOrAreRejected) {
  const std::vector<json> lines = lines_of("expressions.jsonl");
  const Conversation chat = read_conversation(lines.at(0)["chat"].dump());
  int written = 0, rejected = 0, stricter = 0;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const json& expected = lines[i]["text"];
    const bool is_stricter = lines[i].contains("refused");
    std::optional<std::string> text;
    try {
      text = ChatTemplate("T", lines[i]["source"].get<std::string>(), {}).render(chat, true).text;
    } catch (const DataError& fault) {
      EXPECT_THAT(fault.what(), HasSubstr("T: line 1"));
    }
    EXPECT_EQ(text.value_or("rejected"),
              expected.is_null() || is_stricter ? "rejected" : expected.get<std::string>())
        << lines[i]["source"].get<std::string>();
    ++(expected.is_null() ? rejected : is_stricter ? stricter : written);
  }
  EXPECT_GT(written, 380);
  EXPECT_GT(rejected, 50);
  EXPECT_LT(stricter, 80);
}

/// The ids of a chat, and a mask with 1 for ids of answers.
std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>> ids_and_mask(
    const Chat& chat, const tokenizers::Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids, mask;
  for (const std::int32_t id : data::marked_ids(chat, tokenizer)) {
    ids.push_back(id < 0 ? ~id : id);
    mask.push_back(id < 0 ? 1 : 0);
  }
  return {ids, mask};
}

/// Three concatenated contents, the second of which is an answer.
Chat chat_of(const std::array<std::string, 3>& contents) {
  const std::size_t begin = contents[0].size();
  return {contents[0] + contents[1] + contents[2], {{begin, begin + contents[1].size()}}};
}

std::unique_ptr<tokenizers::Tokenizer> tokenizer_of(const std::string& name) {
  const bool pieces = name.ends_with(".model");
  return tokenizers::make_tokenizer(
      {.type = pieces ? "SentencePieceTokenizer" : "HuggingFaceTokenizer",
       .model = test::vector_path("tokenizers/" + name + (pieces ? "" : ".json"))});
}

TEST(ChatTemplate, AnswerMasksMatchTransformers) {
  int compared = 0;
  for (const json& expected : lines_of("masks.jsonl")) {
    const auto tokenizer = tokenizer_of(expected["tokenizer"]);
    const json line = {{"messages", expected["messages"]}};
    const auto [ids, mask] = ids_and_mask(
        template_of(expected["template"], "<|begin_of_text|>").chat(read_conversation(line.dump())),
        *tokenizer);
    EXPECT_EQ(ids, expected["ids"].get<std::vector<std::int32_t>>()) << line;
    EXPECT_EQ(mask, expected["mask"].get<std::vector<std::int32_t>>()) << line;
    ++compared;
  }
  EXPECT_GT(compared, 50);
}

TEST(ChatTemplate, MarksTokensThatOverlapAnAnswer) {
  std::map<std::string, std::unique_ptr<tokenizers::Tokenizer>> tokenizers;
  int compared = 0;
  for (const json& expected : lines_of("overlaps.jsonl")) {
    auto& tokenizer = tokenizers[expected["tokenizer"]];
    if (tokenizer == nullptr) tokenizer = tokenizer_of(expected["tokenizer"]);
    const auto [ids, mask] = ids_and_mask(chat_of(expected["contents"]), *tokenizer);
    EXPECT_EQ(ids, expected["ids"].get<std::vector<std::int32_t>>()) << expected;
    EXPECT_EQ(mask, expected["mask"].get<std::vector<std::int32_t>>()) << expected;
    ++compared;
  }
  EXPECT_GT(compared, 400);
}

TEST(ChatTemplate, MarksCharactersComposedAcrossTheEdgeOfAnAnswer) {
  const auto qwen = tokenizer_of("qwen2_bpe");
  for (const auto& contents : {std::array<std::string, 3>{"1e", "\u0301", "2"}, {"1", "e", "\u03012"}}) {
    const auto [ids, mask] = ids_and_mask(chat_of(contents), *qwen);
    EXPECT_EQ(ids, qwen->encode("1\u00e92"));
    std::vector<std::int32_t> marked;
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (mask[i] == 1) marked.push_back(ids[i]);
    EXPECT_FALSE(marked.empty());
    EXPECT_EQ(mask.front(), 0);
    EXPECT_EQ(mask.back(), 0);
  }
}

TEST(ChatTemplate, LocatesSentencePiecePiecesByTheirText) {
  for (const char* name : {"llama2_sp_bpe.model", "sp_unigram.model"}) {
    const auto tokenizer = tokenizer_of(name);
    const auto [ids, mask] = ids_and_mask(chat_of({"the cat", " is", " here"}), *tokenizer);
    std::string marked;
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (mask[i] == 1) marked += tokenizer->bytes_of(ids[i]);
    EXPECT_EQ(marked, " is") << name;
  }
}

TEST(ChatTemplate, TheLastDuplicateKeyWins) {
  const Conversation chat = read_conversation(
      R"({"messages": 1, "messages": [{"role": "user", "content": "a", "role": "assistant", "content": "b"}], "tools": 3, "tools": [1]})");
  EXPECT_EQ(chat.roles, std::vector<std::string>{"assistant"});
  const ChatTemplate shown("T", "{{ messages }}{{ tools }}", {});
  EXPECT_EQ(shown.render(chat, false).text, "[{'role': 'assistant', 'content': 'b'}][1]");
}

TEST(ChatTemplate, EdgeCasesOfPython) {
  EXPECT_EQ(rendered("{{ ' a  b '.split(none, 1) }}"), "['a', 'b ']");
  EXPECT_EQ(rendered("{{ ' a '.split(none, 1) }}"), "['a']");
  EXPECT_EQ(rendered("{{ '\x7f' | tojson(ensure_ascii=true) }}"), "\"\\u007f\"");
  EXPECT_EQ(rendered("{{ -0.0 }} {{ +(-0.0) }} {{ -1.5 }} {{ -0 }}"), "-0.0 -0.0 -1.5 0");
  EXPECT_EQ(rendered("{{ ['b', 'A', 'a', 'B'] | unique | list }}"), "['b', 'A']");
  EXPECT_EQ(rendered("{{ (1).name is defined }}"), "False");
  EXPECT_EQ(
      rendered(
          "{{ '٣' | int }} {{ '-٤٢' | int }} {{ '+３' | int }} {{ '²' | int(-7) }} {{ '+-5' | int(-7) }}"),
      "3 -42 3 -7 -7");
}

TEST(ChatTemplate, ReadsManyMembersInLinearTime) {
  std::string line = R"({"messages": [{"role": "user")";
  for (int i = 0; i < 200000; ++i) line += fmt::format(R"(, "member {}": {})", i, i);
  const Conversation chat = read_conversation(line + "}]}");
  EXPECT_EQ(chat.messages.list()->items[0].mapping()->items.size(), 200001);
}

TEST(ChatTemplate, ErrorsNameWhatALineLacks) {
  const std::pair<const char*, const char*> kLines[] = {
      {"{", "must be JSON"},
      {"[]", "an object with 'messages'"},
      {"{}", "must have 'messages'; got none"},
      {R"({"messages": "a"})", "'messages' must be a list"},
      {R"({"messages": []})", "at least one message"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"content": "b"}]})",
       "message 2 must be an object with a string 'role'"},
      {R"({"messages": [{"role": 3}]})", "message 1 must be"},
      {R"({"messages": [{"role": "user"}], "tools": 3})", "'tools' must be a list"},
      {R"({"messages": [{"role": "user"}], "chat_template_kwargs": {"messages": 1}})",
       "must not set a variable"},
      {R"({"messages": [{"role": "user", "x": 18446744073709551615}]})", "64 bits"},
  };
  for (const auto& [line, fault] : kLines)
    EXPECT_THAT(test::message_of<DataError>([&, text = line] { (void)read_conversation(text); }),
                HasSubstr(fault))
        << line;
}

TEST(ChatTemplate, ErrorsNameTheConstructAndItsLine) {
  const std::pair<const char*, const char*> kFaults[] = {
      {"a\n{% include 'x' %}", "line 2: the statement 'include' is not supported"},
      {"{% block a %}{% endblock %}", "'block'"},
      {"{% raw %}{% endraw %}", "'raw'"},
      {"\n\n{{ 'a' | wordwrap }}", "line 3: the filter 'wordwrap'"},
      {"{{ 'a' is sameas 'a' }}", "the test 'sameas'"},
      {"{% set a = [1, 2] | map('string') %}{% for b in a %}{% break %}{% endfor %}{{ a | list }}",
       "a generator must not be used after a filter or an unfinished loop has consumed it"},
      {"{{ range(3) }}", "only data can be written; got a range"},
      {"{{ {'a': 1}.items() }}", "got a view of a mapping"},
      {"{{ {('a' | safe): 1} }}", "keys of a mapping must be strings here; got a safe string"},
      {"{{ 'a' | indent('>' | safe) }}", "the width must not be a safe string"},
      {"{{ ('a' | safe).striptags() }}", "the method 'striptags' of a safe string"},
      {"{{ [0.1, 0.2, 0.3] | sum }}", "the same in all versions of Python"},
      {"{{ 'inf' | float }}", "must be finite"},
      {"{{ '1_0' | int }}", "must not contain _"},
      {"{{ 15 | round(-1) }}", "precision must be from 0 to 22"},
      {"{{ [1, 'a'] | sort }}", "'<' must have operands of matching types; got a string and an integer"},
      {"{{ [[1]] | unique | list }}", "strings, numbers or none"},
      {"{{ 'a'.zfill(3) }}", "the method 'zfill' of a string"},
      {"{{ messages.append(1) }}", "the method 'append' of a list"},
      {"{{ 2 ** 3 }}", "power operator"},
      {"{% for a in [1] recursive %}{% endfor %}", "a recursive loop"},
      {"{% for a in [1] %}{% macro b() %}{% endmacro %}{% endfor %}", "a macro inside"},
      {"{% set a %}{% generation %}{% endgeneration %}{% endset %}", "{% generation %} must write directly"},
      {"{{ loop_of.x }}", "'loop_of', which is undefined"},
      {"{{ strftime_now('%Y') }}", "must not depend on the day"},
      {"{{ 'a' + 1 }}", "a string and an integer"},
      {"{{ 1 / 0 }}", "divisors must not be 0"},
      {"{{ 9007199254740993 / 3 }}", "must be below 2^53"},
      {"{{ [['a']] | map(attribute='\u0660') | list }}", "ASCII digits"},
      {"{{ [{}] | map(attribute='99999999999999999999') | list }}", "fit 64 bits"},
      {"{{ {'b': {'z': 1}, 'a': {'z': 1}} | dictsort(by='value') }}", "got a mapping and a mapping"},
      {"{{ 9223372036854775 * 9223372036854775 }}", "64 bits"},
      {"{{ 1 | tojson(indnet=2) }}", "no argument 'indnet'"},
      {"{{ 'x'.__class__ }}", "must not begin with _"},
      {"{{ (2).real }}", "'.real' of an integer is not supported"},
      {"{{ true['imag'] }}", "'.imag' of a boolean"},
      {"{{ (2.5).is_integer() }}", "is_integer"},
      {"{{ messages[0].items }}", "must be called"},
      {"{{ raise_exception('no tools') }}", "rejects the conversation; got 'no tools'"},
      {"{% if true %}", "the template must have {% endif %} here; got the end of the template"},
      {"{{ (1 }}", "brackets"},
      {"{{ 'a }}", "a string must end"},
      {"{# a", "a comment must end"},
      {"{{ }}", "the template must have an expression here; got }}"},
      {"{% set loop = 1 %}", "a name that can be set"},
      {"{% break %}", "a loop around it"},
  };
  for (const auto& [source, fault] : kFaults)
    EXPECT_THAT(error_of(source), AllOf(HasSubstr("T: line "), HasSubstr(fault))) << source;
}

TEST(ChatTemplate, RejectsGeneratorsThatMayBeConsumed) {
  const std::string four = "{% set g = [1, 2, 3, 4] | select %}";
  for (const char* use : {
           "{% for x in g %}{{ x }}{{ g | first }}{% endfor %}",
           "{% for x in g %}{{ x }}{{ 3 in g }}{% endfor %}",
           "{% for x in g %}{{ x }}{% for y in g %}({{ y }}){% endfor %}{% endfor %}",
           "{% for x in g if 2 in g %}{{ x }}{% endfor %}",
           "{% for x in g %}{{ x }}{% break %}{% endfor %}{{ g | list }}",
           "{% for x in g %}{{ x }}{% break %}{% endfor %}{{ 3 in g }}",
           "{% set h = g | map('string') %}{{ g | first }}|{{ h | list }}",
           "{% set h = g | select %}{{ h | first }}{{ g | list }}{{ h | list }}",
           "{% set h = g | unique %}{{ h | list }}{{ g | list }}",
           "{% set h = [g] | map('first') %}{{ g | first }}{{ h | list }}",
           "{% set h = [g] | map('list') %}{{ 1 in g }}{{ h | list }}",
           "{% set h = [2, 9] | select('in', g) %}{{ g | first }}{{ h | list }}",
       })
    EXPECT_THAT(error_of(four + use), HasSubstr("a generator must not be used after")) << use;
  EXPECT_THAT(
      error_of("{% set ns = namespace(n=0) %}{% set h = [ns] | map(attribute='n') %}{% set ns.n = 2 %}"
               "{{ h | list }}"),
      HasSubstr("filters must not read a namespace"));
  EXPECT_THAT(error_of("{% set ns = namespace() %}{% for x in [1] %}{% set ns.l = loop %}{% endfor %}"
                       "{{ ns.l.index }}"),
              HasSubstr("loop.index must be read inside its loop"));
}

TEST(ChatTemplate, HostileTemplatesTerminate) {
  const auto many = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  const std::pair<std::string, const char*> kHostile[] = {
      {"{{ " + many("(", 100000) + "1" + many(")", 100000) + " }}", "deep"},
      {"{{ " + many("[", 5000) + many("]", 5000) + " }}", "deep"},
      {"{{ " + many("-", 100000) + "1 }}", "deep"},
      {"{{ " + many("not ", 100000) + "1 }}", "deep"},
      {"{{ 1" + many("+1", 100000) + " }}", "deep"},
      {"{{ a" + many(".b", 100000) + " }}", "deep"},
      {many("{% if 1 %}", 50000), "deep"},
      {many("{{ 1 }}", 200000), "at most 1 MB"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "deep"},
      {"{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}", "deep"},
      {"{% set ns = namespace(x='a') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
       "200 million bytes"},
      {"{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
       "200 million bytes"},
      {"{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
       "200 million bytes"},
      {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "200 million bytes"},
      {"{{ 'a' * 900000000000000000 }}", "200 million bytes"},
      {"{% set ns = namespace(x=['a' * 2000000]) %}{% for i in range(9) %}{% set "
       "ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x | unique | list }}",
       "200 million bytes"},
      {"{{ range(1, 100000000000) }}", "at most 100000 numbers"},
      {"{% set a = namespace() %}{% set a.a = a %}{{ a }}", "only data"},
  };
  for (const auto& [source, fault] : kHostile)
    EXPECT_THAT(error_of(source), HasSubstr(fault)) << source.substr(0, 80);
}

TEST(ChatTemplate, CorruptedTemplatesGiveATextOrAnError) {
  const std::string whole = read_file(test::vector_path("chat/templates/constructs.jinja"));
  const Conversation chat = read_conversation(kTalk);
  int texts = 0, errors = 0;
  const auto render_or_fail = [&](const std::string& source) {
    try {
      (void)ChatTemplate("T", source, {}).render(chat, false);
      ++texts;
    } catch (const DataError& fault) {
      EXPECT_THAT(fault.what(), HasSubstr("T: line ")) << source;
      ++errors;
    }
  };
  for (std::size_t i = 0; i < whole.size(); i += 3) render_or_fail(whole.substr(0, i));
  constexpr std::string_view kInserted = "{}%[](|'.-0a ";
  for (std::size_t i = 0; i < whole.size(); i += 2) {
    std::string changed = whole;
    changed[i] = kInserted[i / 2 % kInserted.size()];
    render_or_fail(changed);
  }
  EXPECT_GT(texts, 100);
  EXPECT_GT(errors, 100);
}

TEST(ChatTemplate, IsReadFromTheFolderOrTheFlag) {
  const test::TempFolder folder;
  const std::string model = folder / "";
  const auto source = [&](const std::string& given = "") {
    return read_template({.model = model, .template_or_path = given}).source();
  };
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(folder / name) << text; };
  EXPECT_THAT(test::message_of<ConfigError>([&] { (void)source(); }), HasSubstr("--chat-template"));
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]})");
  EXPECT_EQ(source(), "b");
  write("tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "chat_template": "c{{ bos_token }}"})");
  EXPECT_EQ(source(), "c{{ bos_token }}");
  EXPECT_EQ(read_template({.model = model}).render(read_conversation(kTalk), false).text, "c<s>");
  write("tokenizer_config.json",
        R"({"bos_token": "<s>", "image_token": "<i>", "extra_special_tokens": {"more": "<m>"},
          "chat_template": "{{ bos_token }}{{ image_token }}{{ more }}{{ video_token }}"})");
  write("special_tokens_map.json", R"({"video_token": {"content": "<v>"}})");
  EXPECT_EQ(read_template({.model = model}).render(read_conversation(kTalk), false).text, "<s><i><m><v>");
  write("chat_template.jinja", "d");
  EXPECT_EQ(source(), "d");
  EXPECT_EQ(source("{{ 1 }}"), "{{ 1 }}");
  const std::string longer = "{{ '" + std::string(300, 'a') + "' }}";  // longer than a file name may be
  EXPECT_EQ(source(longer), longer);
  write("own.jinja", "e");
  EXPECT_EQ(source(folder / "own.jinja"), "e");
  EXPECT_THAT(test::message_of<ConfigError>([&] { (void)source("nowhere.jinja"); }),
              HasSubstr("got 'nowhere.jinja'"));
}

TEST(ChatTemplate, MegatronFormatsMarkTheirAnswers) {
  const Conversation chat = read_conversation(
      R"({"messages": [{"role": "system", "content": " S /think"}, {"role": "user", "content": "U /no_think "}, {"role": "assistant", "content": " A "}]})");
  const auto chat_of = [&](const char* format) { return read_template({.format = format}).chat(chat); };
  EXPECT_EQ(chat_of("identity").text, " S /thinkU /no_think  A ");
  EXPECT_EQ(answers_of(chat_of("identity")), std::vector<std::string>{" A "});
  EXPECT_EQ(chat_of("nemotron-h-aligned").text,
            "<SPECIAL_10>System\nS /think\n<SPECIAL_11>User\nU /no_think\n<SPECIAL_11>Assistant\nA\n");
  EXPECT_EQ(answers_of(chat_of("nemotron-h-aligned")), std::vector<std::string>{"A\n"});
  EXPECT_EQ(chat_of("nemotron-nano-v2").text,
            "<SPECIAL_10>System\nS\n<SPECIAL_11>User\nU\n<SPECIAL_11>Assistant\nA\n<SPECIAL_12>\n");
  EXPECT_EQ(answers_of(chat_of("nemotron-nano-v2")), std::vector<std::string>{"A\n<SPECIAL_12>\n"});
}

}  // namespace
}  // namespace colonnade::chat_template
