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
    if (current().kind != Kind::kEnd) unexpected("the end of the template");
    return body;
  }

 private:
  /// Parses statements up to the template's end, or to a tag in `ends`, which stays the current token.
  Body statements(std::initializer_list<std::string_view> ends) {
    Body body;
    while (current().kind != Kind::kEnd) {
      budget_.line = current().line;
      if (current().kind == Kind::kData) {
        body.push_back(text());
      } else if (current().kind == Kind::kPrint) {
        body.push_back(print());
      } else {
        advance();
        const Token& tag = current();
        if (tag.kind != Kind::kName) unexpected("a statement");
        if (std::ranges::find(ends, tag.text) != ends.end()) return body;
        body.push_back(statement());
      }
    }
    if (ends.size() > 0) unexpected(fmt::format("{{% {} %}}", *(ends.end() - 1)));
    return body;
  }

  NodePtr text() {
    NodePtr node = make_node(NodeKind::kText);
    node->constant = Value::text(advance().text);
    return node;
  }

  NodePtr print() {
    advance();
    std::vector<NodePtr> children;
    children.push_back(tuple());
    if (current().kind != Kind::kPrintEnd) unexpected("}}");
    NodePtr node = make_node(NodeKind::kPrint, std::move(children));
    advance();
    return node;
  }

  void end_of_block() {
    if (current().kind != Kind::kBlockEnd) unexpected("%}");
    advance();
  }

  NodePtr statement() {
    if (++nested_ > 100)
      budget_.fail("statements must be nested at most 100 deep", "more", "write a simpler template");
    NodePtr node = one_statement();
    --nested_;
    update_depth(*node);
    return node;
  }

  NodePtr one_statement() {
    static const std::map<std::string_view, NodePtr (Parser::*)()> kTags = {
        {"set", &Parser::set},
        {"for", &Parser::loop},
        {"if", &Parser::branch},
        {"macro", &Parser::macro},
        {"break", &Parser::jump},
        {"continue", &Parser::jump},
        {"generation", &Parser::generation},
    };
    const auto tag = kTags.find(current().text);
    if (tag == kTags.end()) reject(fmt::format("the statement '{}'", current().text));
    return (this->*tag->second)();
  }

  NodePtr jump() {
    if (loops_ == 0) unexpected("a loop around it");
    NodePtr node = make_node(current().text == "break" ? NodeKind::kBreak : NodeKind::kContinue);
    advance();
    end_of_block();
    return node;
  }

  /// Parses the body up to {% `end` %}.
  Body body_until(std::string_view end) {
    end_of_block();
    Body body = statements({end});
    advance();
    end_of_block();
    return body;
  }

  NodePtr set() {
    NodePtr node = make_node(NodeKind::kSet);
    advance();
    node->names.push_back(variable());
    if (accept(".")) {
      node->name = expect_name();
    } else {
      while (accept(",")) node->names.push_back(variable());
    }
    if (accept("=")) {
      node->children.push_back(tuple());
      end_of_block();
      return node;
    }
    if (current().is("|")) reject("a filter of {% set %}");
    if (node->names.size() > 1 || !node->name.empty()) unexpected("'='");
    node->kind = NodeKind::kSetBlock;
    const int loops = std::exchange(loops_, 0);
    const int inner = inner_++;
    node->bodies.push_back(body_until("endset"));
    inner_ = inner;
    loops_ = loops;
    return node;
  }

  std::string variable() {
    static constexpr std::string_view kReserved[] = {"true",  "false", "none", "True",
                                                     "False", "None",  "loop"};
    if (std::ranges::find(kReserved, current().text) != std::end(kReserved))
      unexpected("a name that can be set");
    return expect_name();
  }

  NodePtr loop() {
    NodePtr node = make_node(NodeKind::kFor);
    advance();
    const bool parenthesized = accept("(");
    node->names.push_back(variable());
    while (accept(",")) node->names.push_back(variable());
    if (parenthesized) expect(")");
    if (!current().is_name("in")) unexpected("'in'");
    advance();
    node->children.push_back(tuple(false));
    node->children.emplace_back();
    if (current().is_name("if")) {
      advance();
      node->children[1] = expression();
    }
    if (current().is_name("recursive")) reject("a recursive loop");
    end_of_block();
    ++loops_;
    const int inner = inner_++;
    node->bodies.push_back(statements({"else", "endfor"}));
    inner_ = inner;
    --loops_;
    node->bodies.emplace_back();
    if (advance().text == "else") {
      node->bodies[1] = body_until("endfor");
    } else {
      end_of_block();
    }
    return node;
  }

  NodePtr branch() {
    NodePtr node = make_node(NodeKind::kIf);
    while (true) {
      advance();
      node->children.push_back(tuple(false));
      end_of_block();
      node->bodies.push_back(statements({"elif", "else", "endif"}));
      if (current().text != "elif") break;
    }
    if (advance().text == "else") {
      node->bodies.push_back(body_until("endif"));
    } else {
      end_of_block();
    }
    return node;
  }

  NodePtr macro() {
    if (inner_ > 0) reject("a macro inside of a loop or another block");
    NodePtr node = make_node(NodeKind::kMacro);
    advance();
    node->name = expect_name();
    expect("(");
    while (!accept(")")) {
      if (!node->names.empty()) expect(",");
      node->names.push_back(variable());
      node->children.push_back(accept("=") ? expression() : nullptr);
    }
    const int loops = std::exchange(loops_, 0);
    ++inner_;
    node->bodies.push_back(body_until("endmacro"));
    --inner_;
    loops_ = loops;
    return node;
  }

  NodePtr generation() {
    NodePtr node = make_node(NodeKind::kGeneration);
    advance();
    const int loops = std::exchange(loops_, 0);
    const int inner = inner_++;
    node->bodies.push_back(body_until("endgeneration"));
    inner_ = inner;
    loops_ = loops;
    return node;
  }

  int loops_ = 0;  // enclosing loops for break and continue
  int inner_ = 0;  // enclosing blocks with their own scope
  int nested_ = 0;
};

}  // namespace

Body parse(std::string_view source, Budget& budget) { return Parser(tokenize(source, budget), budget).run(); }

}  // namespace colonnade::chat_template
