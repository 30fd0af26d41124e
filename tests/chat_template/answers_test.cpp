// Answers of chat templates: their spans for all ways in which a template iterates over messages.
#include "colonnade/chat_template/answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "colonnade/base/error.h"
#include "support/files.h"

namespace colonnade::chat_template {
namespace {

using json = nlohmann::ordered_json;
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

/// The mark that ends an answer: the next role's, if the template writes no ending itself.
std::string closing_mark(const std::string& name, const std::string& following) {
  return name == "closed_by_role" ? following.substr(0, following.find('>') + 1) : "";
}

/// Templates of tests/cases/chat-templates.
ChatTemplate case_template(const std::string& name) {
  return {name, read_file(test::vector_path("cases/chat-templates/" + name + ".jinja")), {}};
}

TEST(ChatAnswers, AnswersFollowTheGenerationPromptInALoopOverMessages) {
  const Conversation chat = read_conversation(kTalk);
  const std::vector<std::string> two{"4<|im_end|>\n", "Yes<|im_end|>\n"};
  EXPECT_EQ(answers_of(template_of("chatml").chat(chat)), two);
  EXPECT_EQ(answers_of(template_of("qwen2_5").chat(chat)), two);
  EXPECT_EQ(answers_of(template_of("llama3").chat(chat)),
            (std::vector<std::string>{"4<|eot_id|>", "Yes<|eot_id|>"}));
  EXPECT_EQ(answers_of(template_of("mistral").chat(chat)), (std::vector<std::string>{"4</s>", "Yes</s>"}));
  EXPECT_EQ(answers_of(template_of("gemma").chat(chat)),
            (std::vector<std::string>{"4<end_of_turn>\n", "Yes<end_of_turn>\n"}));
  EXPECT_EQ(answers_of(template_of("mistral_nemo").chat(chat)),
            (std::vector<std::string>{"4</s>", "Yes</s>"}));
  EXPECT_EQ(answers_of(template_of("gemma3").chat(chat)),
            (std::vector<std::string>{"4<end_of_turn>\n", "Yes<end_of_turn>\n"}));
  EXPECT_EQ(answers_of(template_of("qwen3_coder").chat(chat)), two);
  EXPECT_EQ(answers_of(template_of("deepseek_r1").chat(chat)),
            (std::vector<std::string>{"4</s>", "Yes</s>"}));
  // Without a generation prompt it writes an end of text, which starts like the prompt.
  ChatTemplate phi("phi", read_file(test::vector_path("chat/templates/phi3.jinja")),
                   {{"eos_token", Value::text("<|endoftext|>")}});
  EXPECT_EQ(answers_of(phi.chat(chat)), (std::vector<std::string>{"4<|end|>\n", "Yes<|end|>\n"}));
  // The last turn of Qwen-3 thinks, the earlier ones do not.
  EXPECT_EQ(answers_of(template_of("qwen3").chat(chat)),
            (std::vector<std::string>{"4<|im_end|>\n", "<think>\n\n</think>\n\nYes<|im_end|>\n"}));
}

/// The texts are those of Transformers, whose generation prompts are assistant headers.
TEST(ChatAnswers, AnAnswerInTheFirstMessageStartsAfterItsHeader) {
  const Conversation chat = read_conversation(
      R"({"messages": [{"role": "assistant", "content": "Welcome"}, {"role": "user", "content": "Hi"},)"
      R"( {"role": "assistant", "content": "Hello"}]})");
  const auto both = [](const std::string& end) {
    return std::vector<std::string>{"Welcome" + end, "Hello" + end};
  };
  const Chat qwen2 = template_of("qwen2").chat(chat);
  EXPECT_THAT(qwen2.text, ::testing::StartsWith("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
                                                "<|im_start|>assistant\nWelcome<|im_end|>\n"));
  EXPECT_EQ(answers_of(qwen2), both("<|im_end|>\n"));
  EXPECT_EQ(answers_of(template_of("qwen2_5").chat(chat)), both("<|im_end|>\n"));
  EXPECT_EQ(answers_of(template_of("chatml").chat(chat)), both("<|im_end|>\n"));
  EXPECT_EQ(answers_of(template_of("llama3").chat(chat)), both("<|eot_id|>"));
  EXPECT_EQ(answers_of(template_of("llama3_tools").chat(chat)), both("<|eot_id|>"));
  EXPECT_EQ(answers_of(template_of("zephyr").chat(chat)), both("</s>\n"));
  EXPECT_EQ(answers_of(template_of("phi3").chat(chat)), both("<|end|>\n"));
  EXPECT_EQ(answers_of(template_of("deepseek_r1").chat(chat)), both("</s>"));
  // As in Tulu and OLMo: the bos precedes the loop, and the last iteration writes the generation prompt.
  const ChatTemplate olmo("olmo",
                          R"({{ eos_token }}{% for m in messages %}{% if m.role == 'user' %})"
                          R"({{ '<|user|>\n' + m.content + '\n' }}{% elif loop.last %})"
                          R"({{ '<|assistant|>\n' + m.content + eos_token }}{% else %})"
                          R"({{ '<|assistant|>\n' + m.content + eos_token + '\n' }}{% endif %})"
                          R"({% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }})"
                          R"({% endif %}{% endfor %})",
                          {{"eos_token", Value::text("</s>")}});
  EXPECT_EQ(answers_of(olmo.chat(chat)), (std::vector<std::string>{"Welcome</s>\n", "Hello</s>"}));
  const Conversation empty = read_conversation(
      R"({"messages": [{"role": "assistant", "content": ""}, {"role": "user", "content": "Hi"}]})");
  EXPECT_EQ(answers_of(template_of("qwen2").chat(empty)), std::vector<std::string>{"<|im_end|>\n"});
}

TEST(ChatAnswers, AnswersStartAfterTheirOwnPromptEvenIfTheyStartLikeAnother) {
  const ChatTemplate thinker("thinker", R"({%- set now = namespace(tool=false) -%}
{%- for m in messages -%}
  {%- if m.role == 'user' -%}{%- set now.tool = false -%}{{ '<|User|>' ~ m.content }}
  {%- elif m.role == 'tool' -%}{%- set now.tool = true -%}{{ '<|out|>' ~ m.content }}
  {%- elif now.tool -%}{{ '<|out ends|>' ~ m.content ~ '<|end|>' }}
  {%- else -%}{{ '<|Assistant|>' ~ m.content ~ '<|end|>' }}
  {%- endif -%}
{%- endfor -%}
{%- if now.tool -%}{{ '<|out ends|>' }}
{%- elif add_generation_prompt -%}{{ '<|Assistant|><think>' }}
{%- endif -%})",
                             {});
  const Conversation chat = read_conversation(R"({"messages": [
    {"role": "user", "content": "u"}, {"role": "assistant", "content": "<b>A1"},
    {"role": "tool", "content": "T"}, {"role": "assistant", "content": "<A2"},
    {"role": "user", "content": "u"}, {"role": "assistant", "content": "<think>A3"}]})");
  EXPECT_EQ(answers_of(thinker.chat(chat)),
            (std::vector<std::string>{"<b>A1<|end|>", "<A2<|end|>", "A3<|end|>"}));
}

TEST(ChatAnswers, AnswersAreTheTextThatAMessageAddsToItsPrompt) {
  std::set<std::string> names;
  for (const json& expected : lines_of("turns.jsonl")) {
    const std::string name = expected["template"];
    names.insert(name);
    std::vector<std::string> answers;
    for (const json& answer : expected["answers"])
      answers.push_back(answer["text"].get<std::string>() + closing_mark(name, answer["behind"]));
    const Chat chat = template_of(name).chat(read_conversation(expected.dump()));
    EXPECT_EQ(chat.text, expected["text"].get<std::string>());
    EXPECT_EQ(answers_of(chat), answers) << expected;
    EXPECT_EQ(chat.unended, name == "closed_by_role" ? 1U : 0U) << "nothing follows the last answer";
  }
  EXPECT_GT(names.size(), 14U);
}

TEST(ChatAnswers, FindsAnswersOfLoopsByIndex) {
  EXPECT_EQ(answers_of(case_template("t").chat(read_conversation(kTalk))),
            (std::vector<std::string>{"<assistant>4</assistant>", "<assistant>Yes</assistant>"}));
  const std::pair<const char*, const char*> kLoops[] = {
      {"counter",
       "{% set n = namespace(i=0) %}{% for _ in messages %}{% set m = messages[n.i] %}"
       "{% set n.i = n.i + 1 %}[{{ m.role }}]{{ m.content }}[/]{% endfor %}"},
      {"last first",
       "{% for i in range(messages | length - 1, -1, -1) %}{% set m = messages[-1 - i] %}"
       "[{{ m.role }}]{{ m.content }}[/]{% endfor %}"},
      {"slice",
       "{% for i in range(messages[:] | length) %}{% set m = messages[:][loop.index0] %}"
       "[{{ m.role }}]{{ m.content }}[/]{% endfor %}"},
      {"copies",
       "{% for m in messages %}{% set m = dict(m, seen=true) %}"
       "[{{ m.role }}]{{ m.content }}[/]{% endfor %}"},
      {"selected",
       "{% set all = messages | selectattr('content') | list %}{% for i in range(all | length) %}"
       "[{{ all[i].role }}]{{ all[i]['content'] }}[/]{% endfor %}"},
      {"macro",
       "{% macro write(all) %}{% for m in all %}[{{ m.role }}]{{ m.content }}[/]{% endfor %}"
       "{% endmacro %}{{ write(messages) | trim }}"},
      {"block",
       "{% set all %}{% for m in messages %}[{{ m.role }}]{{ m.content }}[/]{% endfor %}{% endset %}"
       "{{ all.strip() }}"},
  };
  for (const auto& [name, loop] : kLoops) {
    const std::string prompt = "{% if add_generation_prompt %}[assistant]{% endif %}";
    EXPECT_EQ(answers_of(ChatTemplate(name, loop + prompt, {}).chat(read_conversation(kTalk))),
              (std::vector<std::string>{"4[/]", "Yes[/]"}))
        << name;
  }
}

TEST(ChatAnswers, TheMarkOfTheNextRoleEndsAnAnswer) {
  const Chat chat = case_template("g").chat(read_conversation(kTalk));
  EXPECT_EQ(answers_of(chat), (std::vector<std::string>{"<|assistant|>4<|user|>", "<|assistant|>Yes"}));
  EXPECT_EQ(chat.unended, 1U);
  const auto talk = [](const char* call, const char* then) {
    return read_conversation(fmt::format(
        R"({{"messages": [{{"role": "user", "content": "w"}}, {}, {{"role": "tool", "content": "9"}}, {}]}})",
        call, then));
  };
  constexpr const char* kCall =
      R"({"role": "assistant", "tool_calls": [{"function": {"name": "get", "arguments": {"a": 3}}}]})";
  constexpr const char* kThen = R"({"role": "assistant", "content": "nine"})";
  EXPECT_EQ(answers_of(template_of("closed_by_role").chat(talk(kCall, kThen))),
            (std::vector<std::string>{"\n<tool_call>get\n<arg_key>a</arg_key>\n<arg_value>3</arg_value>\n"
                                      "</tool_call><|observation|>",
                                      "\nnine"}));
  EXPECT_EQ(answers_of(template_of("by_index").chat(talk(kCall, kThen)))[0],
            "<tool_call>{\"name\": \"get\", \"arguments\": {\"a\": 3}}</tool_call>[|endofturn|]\n")
      << "the template writes an ending";
  // Neither words of the next message nor words of a header are marks.
  for (const char* source : {"{% for m in messages %}{{ m.content }}{% endfor %}",
                             "{% for m in messages %}{{ '\n' ~ m.role ~ ': ' ~ m.content }}{% endfor %}"}) {
    const Chat open = ChatTemplate("T", source, {})
                          .chat(read_conversation(R"({"messages": [{"role": "assistant", "content": "a"},)"
                                                  R"({"role": "user", "content": "<b>"}]})"));
    EXPECT_EQ(open.unended, 1U);
    EXPECT_THAT(answers_of(open)[0], ::testing::EndsWith("a"));
  }
}

TEST(ChatAnswers, CountsMarkedAnswersWithoutAnEnding) {
  const auto unended = [](const std::string& marked) {
    return ChatTemplate("T", "{% for m in messages %}" + marked + "<|end|>{% endfor %}", {})
        .chat(read_conversation(kTalk))
        .unended;
  };
  EXPECT_EQ(unended("{% generation %}{{ m.content }}{% endgeneration %}"), 2U);
  EXPECT_EQ(unended("{% generation %}{{ m.content }}</s>{% endgeneration %}"), 0U);
  EXPECT_EQ(unended("{% generation %}{{ m.content }}{% endgeneration %}: {% generation %}{{ m.content }}</s>"
                    "{% endgeneration %}"),
            0U)
      << "the last part of an answer counts";
}

TEST(ChatAnswers, RejectsAnswersMixedWithOtherMessages) {
  for (const char* source : {"{{ messages | map(attribute='content') | list | tojson }}",
                             "{{ messages[1].content }}{{ messages[0].content }}{{ messages[1].content }}"})
    EXPECT_THAT(test::message_of<DataError>(
                    [&] { (void)ChatTemplate("T", source, {}).chat(read_conversation(kTalk)); }),
                HasSubstr("must write answers apart from other messages; got message 2 mixed"));
}

TEST(ChatAnswers, LongConversationsTakeLinearTime) {
  json messages = json::array();
  for (int i = 0; i < 2000; ++i) {
    messages.push_back({{"role", "user"}, {"content", "u" + std::to_string(i)}});
    messages.push_back({{"role", "assistant"}, {"content", "a" + std::to_string(i)}});
  }
  const Conversation chat = read_conversation(json{{"messages", messages}}.dump());
  const std::pair<const char*, const char*> kEnds[] = {
      {"chatml", "<|im_end|>\n"}, {"by_index", "[|endofturn|]\n"}, {"in_pairs", "</s>"}};
  for (const auto& [name, end] : kEnds) {
    const std::string space = std::string_view(name) == "in_pairs" ? " " : "";
    const auto answers = answers_of(template_of(name).chat(chat));
    ASSERT_EQ(answers.size(), 2000U) << name;
    EXPECT_EQ(answers.front(), space + "a0" + end);
    EXPECT_EQ(answers.back(), space + "a1999" + end);
  }
}

TEST(ChatAnswers, RejectsConversationsWithoutAnswers) {
  const auto fault = [](const ChatTemplate& t, const std::string& line) {
    return test::message_of<DataError>([&] { (void)t.chat(read_conversation(line)); });
  };
  EXPECT_THAT(fault(template_of("chatml"), R"({"messages": [{"role": "user", "content": "a"}]})"),
              HasSubstr("'assistant'; got none"));
  EXPECT_THAT(fault(ChatTemplate("T", "{{ messages[0].content }}", {}), kTalk),
              HasSubstr("must write an answer: words of an assistant message"));
}

}  // namespace
}  // namespace colonnade::chat_template
