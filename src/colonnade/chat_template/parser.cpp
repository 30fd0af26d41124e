// See ast.h: the statements of a chat template.
#include "colonnade/chat_template/parser.h"

#include <algorithm>
#include <map>

namespace colonnade::chat_template {
namespace {

using Kind = Token::Kind;

class Parser : private ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Body run() {
    Body body = statements({});
    if (now().kind != Kind::kEnd) unexpected("the end of the template");
    return body;
  }

 private:
  /// Up to one of the `ends`, whose name is taken, or the end of the template.
  Body statements(std::initializer_list<std::string_view> ends) {
    Body body;
    while (now().kind != Kind::kEnd) {
      budget_.line = now().line;
      if (now().kind == Kind::kData) {
        body.push_back(text());
      } else if (now().kind == Kind::kPrint) {
        body.push_back(print());
      } else {
        take();
        const Token& tag = now();
        if (tag.kind != Kind::kName) unexpected("a statement");
        if (std::ranges::find(ends, tag.text) != ends.end()) return body;
        body.push_back(statement());
      }
    }
    if (ends.size() > 0) unexpected(fmt::format("{{% {} %}}", *(ends.end() - 1)));
    return body;
  }

  NodePtr text() {
    NodePtr node = make(What::kText);
    node->constant = Value::text(take().text);
    return node;
  }

  NodePtr print() {
    take();
    std::vector<NodePtr> parts;
    parts.push_back(tuple());
    if (now().kind != Kind::kPrintEnd) unexpected("}}");
    NodePtr node = make(What::kPrint, std::move(parts));
    take();
    return node;
  }

  void end_of_block() {
    if (now().kind != Kind::kBlockEnd) unexpected("%}");
    take();
  }

  NodePtr statement() {
    if (++nested_ > 100)
      budget_.fail("statements must lie at most 100 deep in each other", "more", "write a simpler template");
    NodePtr node = one_statement();
    --nested_;
    settle(*node);
    return node;
  }

  NodePtr one_statement() {
    static const std::map<std::string_view, NodePtr (Parser::*)()> kTags = {
        {"set", &Parser::set},           {"for", &Parser::loop},   {"if", &Parser::branch},
        {"macro", &Parser::macro},       {"break", &Parser::jump}, {"continue", &Parser::jump},
        {"generation", &Parser::answer},
    };
    const auto tag = kTags.find(now().text);
    if (tag == kTags.end()) refuse(fmt::format("the statement '{}'", now().text));
    return (this->*tag->second)();
  }

  NodePtr jump() {
    if (loops_ == 0) unexpected("a loop around it");
    NodePtr node = make(now().text == "break" ? What::kBreak : What::kContinue);
    take();
    end_of_block();
    return node;
  }

  /// The body up to {% `end` %}.
  Body body_until(std::string_view end) {
    end_of_block();
    Body body = statements({end});
    take();
    end_of_block();
    return body;
  }

  NodePtr set() {
    NodePtr node = make(What::kSet);
    take();
    node->names.push_back(variable());
    if (take_if(".")) {
      node->name = expect_name();
    } else {
      while (take_if(",")) node->names.push_back(variable());
    }
    if (take_if("=")) {
      node->parts.push_back(tuple());
      end_of_block();
      return node;
    }
    if (now().is("|")) refuse("a filter of {% set %}");
    if (node->names.size() > 1 || !node->name.empty()) unexpected("'='");
    node->what = What::kSetBlock;
    const int loops = std::exchange(loops_, 0);
    const int inner = inner_++;
    node->bodies.push_back(body_until("endset"));
    inner_ = inner;
    loops_ = loops;
    return node;
  }

  std::string variable() {
    static constexpr std::string_view kTaken[] = {"true", "false", "none", "True", "False", "None", "loop"};
    if (std::ranges::find(kTaken, now().text) != std::end(kTaken)) unexpected("a name that can be set");
    return expect_name();
  }

  NodePtr loop() {
    NodePtr node = make(What::kFor);
    take();
    const bool round = take_if("(");
    node->names.push_back(variable());
    while (take_if(",")) node->names.push_back(variable());
    if (round) expect(")");
    if (!now().is_name("in")) unexpected("'in'");
    take();
    node->parts.push_back(tuple(false));
    node->parts.emplace_back();
    if (now().is_name("if")) {
      take();
      node->parts[1] = expression();
    }
    if (now().is_name("recursive")) refuse("a recursive loop");
    end_of_block();
    ++loops_;
    const int inner = inner_++;
    node->bodies.push_back(statements({"else", "endfor"}));
    inner_ = inner;
    --loops_;
    node->bodies.emplace_back();
    if (take().text == "else") {
      node->bodies[1] = body_until("endfor");
    } else {
      end_of_block();
    }
    return node;
  }

  NodePtr branch() {
    NodePtr node = make(What::kIf);
    while (true) {
      take();
      node->parts.push_back(tuple(false));
      end_of_block();
      node->bodies.push_back(statements({"elif", "else", "endif"}));
      if (now().text != "elif") break;
    }
    if (take().text == "else") {
      node->bodies.push_back(body_until("endif"));
    } else {
      end_of_block();
    }
    return node;
  }

  NodePtr macro() {
    if (inner_ > 0) refuse("a macro inside of a loop or another block");
    NodePtr node = make(What::kMacro);
    take();
    node->name = expect_name();
    expect("(");
    while (!take_if(")")) {
      if (!node->names.empty()) expect(",");
      node->names.push_back(variable());
      node->parts.push_back(take_if("=") ? expression() : nullptr);
    }
    const int loops = std::exchange(loops_, 0);
    ++inner_;
    node->bodies.push_back(body_until("endmacro"));
    --inner_;
    loops_ = loops;
    return node;
  }

  NodePtr answer() {
    NodePtr node = make(What::kGeneration);
    take();
    const int loops = std::exchange(loops_, 0);
    const int inner = inner_++;
    node->bodies.push_back(body_until("endgeneration"));
    inner_ = inner;
    loops_ = loops;
    return node;
  }

  int loops_ = 0;  // around here, which break and continue are about
  int inner_ = 0;  // blocks around here whose variables end with them
  int nested_ = 0;
};

}  // namespace

Body parse(std::string_view source, Budget& budget) {
  return Parser(tokens_of(source, budget), budget).run();
}

}  // namespace colonnade::chat_template
