// See parser.h.
#include <algorithm>
#include <charconv>
#include <optional>

#include "colonnade/chat_template/parser.h"

namespace colonnade::chat_template {
namespace {

using Kind = Token::Kind;
constexpr int kMostDepth = 200;

std::string shown(const Token& token) {
  switch (token.kind) {
    case Kind::kEnd:
      return "the end of the template";
    case Kind::kBlockEnd:
      return "%}";
    case Kind::kPrintEnd:
      return "}}";
    case Kind::kData:
      return "text";
    default:
      return fmt::format("'{}'", token.text.substr(0, 40));
  }
}

/// The operator of a comparison that begins at `token`; "not" begins "not in".
std::string comparison_of(const Token& token) {
  if (token.is_name("in") || token.is_name("not")) return token.text;
  for (const char* op : {"==", "!=", "<", "<=", ">", ">="})
    if (token.is(op)) return op;
  return "";
}

}  // namespace

struct ExpressionParser::Deeper {
  explicit Deeper(ExpressionParser& parser) : depth(parser.depth_) {
    if (++depth > kMostDepth)
      parser.budget_.fail(fmt::format("expressions must lie at most {} deep in each other", kMostDepth),
                          "more", "write parts of it into variables");
  }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
  ~Deeper() { --depth; }
  int& depth;
};

void ExpressionParser::unexpected(const std::string& wanted) const {
  budget_.line = now().line;
  budget_.fail(fmt::format("{} must be here", wanted), shown(now()), "mend the template");
}

void ExpressionParser::refuse(const std::string& construct) const {
  budget_.line = now().line;
  budget_.fail(fmt::format("{} is not understood here", construct), "it", "write the template without it");
}

bool ExpressionParser::take_if(std::string_view op) {
  if (!now().is(op)) return false;
  take();
  return true;
}

void ExpressionParser::expect(std::string_view op) {
  if (!take_if(op)) unexpected(fmt::format("'{}'", op));
}

std::string ExpressionParser::expect_name() {
  if (now().kind != Kind::kName) unexpected("a name");
  return take().text;
}

NodePtr ExpressionParser::make(What what, std::vector<NodePtr> parts, std::string name) const {
  auto node = std::make_unique<Node>();
  node->what = what;
  node->line = now().line;
  node->name = std::move(name);
  node->parts = std::move(parts);
  settle(*node);
  return node;
}

void ExpressionParser::settle(Node& node) const {
  int depth = 0;
  for (const NodePtr& part : node.parts)
    if (part) depth = std::max(depth, part->depth);
  for (const auto& [name, part] : node.named) depth = std::max(depth, part->depth);
  for (const Body& body : node.bodies)
    for (const NodePtr& part : body) depth = std::max(depth, part->depth);
  node.depth = depth + 1;
  if (node.depth > kMostDepth)
    budget_.fail(fmt::format("parts of a template must lie at most {} deep in each other", kMostDepth),
                 "more", "write parts of it into variables");
}

namespace {

template <typename... Parts>
std::vector<NodePtr> parts_of(Parts... parts) {
  std::vector<NodePtr> all;
  (all.push_back(std::move(parts)), ...);
  return all;
}

}  // namespace

NodePtr ExpressionParser::tuple(bool choices) {
  const auto one = [&] { return choices ? expression() : disjunction(); };
  NodePtr first = one();
  if (!now().is(",")) return first;
  NodePtr node = make(What::kList, parts_of(std::move(first)));
  node->flag = true;
  while (take_if(",")) {
    if (now().kind == Kind::kBlockEnd || now().kind == Kind::kPrintEnd || now().is(")")) break;
    node->parts.push_back(one());
  }
  settle(*node);
  return node;
}

NodePtr ExpressionParser::expression() {
  const Deeper deeper(*this);
  NodePtr value = disjunction();
  while (now().is_name("if")) {
    take();
    NodePtr condition = disjunction();
    NodePtr otherwise;
    if (now().is_name("else")) {
      take();
      otherwise = expression();
    }
    value = make(What::kChoice, parts_of(std::move(condition), std::move(value), std::move(otherwise)));
  }
  return value;
}

NodePtr ExpressionParser::disjunction() {
  NodePtr left = conjunction();
  while (now().is_name("or")) {
    take();
    NodePtr right = conjunction();
    left = make(What::kOr, parts_of(std::move(left), std::move(right)));
  }
  return left;
}

NodePtr ExpressionParser::conjunction() {
  NodePtr left = negation();
  while (now().is_name("and")) {
    take();
    NodePtr right = negation();
    left = make(What::kAnd, parts_of(std::move(left), std::move(right)));
  }
  return left;
}

NodePtr ExpressionParser::negation() {
  if (!now().is_name("not")) return comparison();
  const Deeper deeper(*this);
  take();
  return make(What::kNot, parts_of(negation()));
}

NodePtr ExpressionParser::comparison() {
  NodePtr node = make(What::kCompare, parts_of(sum()));
  for (std::string op = comparison_of(now()); !op.empty(); op = comparison_of(now())) {
    take();
    if (op == "not") {
      if (!now().is_name("in")) unexpected("'in'");
      take();
      op = "not in";
    }
    node->names.push_back(op);
    node->parts.push_back(sum());
  }
  if (node->names.empty()) return std::move(node->parts[0]);
  settle(*node);
  return node;
}

NodePtr ExpressionParser::chain(NodePtr (ExpressionParser::*operand)(),
                                std::initializer_list<std::string_view> ops) {
  NodePtr left = (this->*operand)();
  while (true) {
    const auto op = std::ranges::find_if(ops, [&](std::string_view each) { return now().is(each); });
    if (op == ops.end()) return left;
    take();
    NodePtr right = (this->*operand)();
    left = make(What::kBinary, parts_of(std::move(left), std::move(right)), std::string(*op));
  }
}

NodePtr ExpressionParser::sum() { return chain(&ExpressionParser::concatenation, {"+", "-"}); }

NodePtr ExpressionParser::concatenation() {
  NodePtr node = make(What::kConcat, parts_of(product()));
  while (take_if("~")) node->parts.push_back(product());
  if (node->parts.size() == 1) return std::move(node->parts[0]);
  settle(*node);
  return node;
}

NodePtr ExpressionParser::product() {
  NodePtr left = unary(true);
  while (now().is("*") || now().is("/") || now().is("//") || now().is("%") || now().is("**")) {
    if (now().is("**")) refuse("the power operator **");
    std::string op = take().text;
    NodePtr right = unary(true);
    left = make(What::kBinary, parts_of(std::move(left), std::move(right)), std::move(op));
  }
  return left;
}

NodePtr ExpressionParser::unary(bool with_filters) {
  const Deeper deeper(*this);
  NodePtr node;
  if (now().is("-") || now().is("+")) {
    const What what = take().text == "-" ? What::kNegative : What::kPositive;
    node = make(what, parts_of(unary(false)));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filters(std::move(node)) : std::move(node);
}

NodePtr ExpressionParser::primary() {
  const Token token = now();
  const auto constant = [&](Value value) {
    NodePtr node = make(What::kConstant);
    node->constant = std::move(value);
    return node;
  };
  if (token.kind == Kind::kName) {
    take();
    if (token.text == "true" || token.text == "True") return constant({true});
    if (token.text == "false" || token.text == "False") return constant({false});
    if (token.text == "none" || token.text == "None") return constant(Value::none());
    return make(What::kName, {}, token.text);
  }
  if (token.kind == Kind::kText) {
    std::string text;
    while (now().kind == Kind::kText) text += take().text;
    return constant(Value::text(text));
  }
  if (token.kind == Kind::kInteger) return constant(Value::integer(std::stoll(take().text)));
  if (token.kind == Kind::kFloat) return constant({std::stod(take().text)});
  return bracketed();
}

NodePtr ExpressionParser::bracketed() {
  const Deeper deeper(*this);
  if (take_if("(")) {
    if (take_if(")")) {
      NodePtr empty = make(What::kList);
      empty->flag = true;
      return empty;
    }
    NodePtr inner = tuple();
    expect(")");
    return inner;
  }
  if (take_if("[")) return list();
  if (take_if("{")) return mapping();
  unexpected("an expression");
}

NodePtr ExpressionParser::list() {
  NodePtr node = make(What::kList);
  while (!take_if("]")) {
    if (!node->parts.empty()) expect(",");
    if (take_if("]")) break;
    node->parts.push_back(expression());
  }
  settle(*node);
  return node;
}

NodePtr ExpressionParser::mapping() {
  NodePtr node = make(What::kMapping);
  while (!take_if("}")) {
    if (!node->parts.empty()) expect(",");
    if (take_if("}")) break;
    node->parts.push_back(expression());
    expect(":");
    node->parts.push_back(expression());
  }
  settle(*node);
  return node;
}

NodePtr ExpressionParser::postfix(NodePtr node) {
  while (true) {
    if (take_if(".")) {
      if (now().kind == Kind::kInteger) {
        NodePtr number = primary();
        node = make(What::kItem, parts_of(std::move(node), std::move(number)));
      } else {
        std::string name = expect_name();
        node = make(What::kAttribute, parts_of(std::move(node)), std::move(name));
      }
    } else if (take_if("[")) {
      node = subscript(std::move(node));
    } else if (now().is("(")) {
      node = make(What::kCall, parts_of(std::move(node)));
      arguments(*node);
    } else {
      return node;
    }
  }
}

NodePtr ExpressionParser::subscript(NodePtr node) {
  const auto bound = [&]() -> NodePtr { return now().is(":") || now().is("]") ? nullptr : expression(); };
  NodePtr first = bound();
  if (!now().is(":")) {
    if (!first) unexpected("an expression");
    expect("]");
    return make(What::kItem, parts_of(std::move(node), std::move(first)));
  }
  take();
  NodePtr stop = bound();
  NodePtr step = take_if(":") ? bound() : nullptr;
  expect("]");
  return make(What::kSlice, parts_of(std::move(node), std::move(first), std::move(stop), std::move(step)));
}

NodePtr ExpressionParser::filters(NodePtr node) {
  while (true) {
    if (take_if("|")) {
      std::string name = expect_name();
      node = make(What::kFilter, parts_of(std::move(node)), std::move(name));
      if (now().is("(")) arguments(*node);
    } else if (now().is_name("is")) {
      take();
      node = test(std::move(node));
    } else if (now().is("(")) {
      node = make(What::kCall, parts_of(std::move(node)));
      arguments(*node);
    } else {
      return node;
    }
  }
}

NodePtr ExpressionParser::test(NodePtr node) {
  const bool negated = now().is_name("not");
  if (negated) take();
  std::string name = expect_name();
  node = make(What::kTest, parts_of(std::move(node)), std::move(name));
  node->flag = negated;
  const Token& next = now();
  const bool value = next.kind == Kind::kName || next.kind == Kind::kText || next.kind == Kind::kInteger ||
                     next.kind == Kind::kFloat || next.is("[") || next.is("{");
  if (next.is("(")) {
    arguments(*node);
  } else if (value && !next.is_name("else") && !next.is_name("or") && !next.is_name("and")) {
    if (next.is_name("is")) unexpected("no second test");
    NodePtr argument = primary();
    node->parts.push_back(postfix(std::move(argument)));
    settle(*node);
  }
  return node;
}

void ExpressionParser::arguments(Node& node) {
  const Deeper deeper(*this);
  expect("(");
  bool first = true;
  while (!take_if(")")) {
    if (!first) expect(",");
    if (take_if(")")) break;
    first = false;
    if (now().is("*") || now().is("**")) refuse("an argument with a star");
    NodePtr value = expression();
    if (value->what == What::kName && take_if("=")) {
      std::string name = std::move(value->name);
      node.named.emplace_back(std::move(name), expression());
    } else if (!node.named.empty()) {
      unexpected("a named argument");
    } else {
      node.parts.push_back(std::move(value));
    }
  }
  settle(node);
}

}  // namespace colonnade::chat_template
