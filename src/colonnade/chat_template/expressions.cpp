// See parser.h.
#include <algorithm>
#include <charconv>
#include <optional>

#include "colonnade/chat_template/parser.h"

namespace colonnade::chat_template {
namespace {

using Kind = Token::Kind;
constexpr int kMaxDepth = 200;

/// A token in error messages.
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

/// The comparison operator at `token`; "not" starts "not in". Empty if it is another token.
std::string comparison_of(const Token& token) {
  if (token.is_name("in") || token.is_name("not")) return token.text;
  for (const char* op : {"==", "!=", "<", "<=", ">", ">="})
    if (token.is(op)) return op;
  return "";
}

}  // namespace

struct ExpressionParser::DepthGuard {
  explicit DepthGuard(ExpressionParser& parser) : depth(parser.depth_) {
    if (++depth > kMaxDepth)
      parser.budget_.fail(fmt::format("expressions must be nested at most {} deep", kMaxDepth), "more",
                          "assign parts of it to variables");
  }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  ~DepthGuard() { --depth; }
  int& depth;
};

void ExpressionParser::unexpected(const std::string& wanted) const {
  budget_.line = current().line;
  budget_.fail(fmt::format("the template must have {} here", wanted), shown(current()), "fix the template");
}

void ExpressionParser::reject(const std::string& construct) const {
  budget_.line = current().line;
  budget_.fail(fmt::format("{} is not supported", construct), "it", "write the template without it");
}

bool ExpressionParser::accept(std::string_view op) {
  if (!current().is(op)) return false;
  advance();
  return true;
}

void ExpressionParser::expect(std::string_view op) {
  if (!accept(op)) unexpected(fmt::format("'{}'", op));
}

std::string ExpressionParser::expect_name() {
  if (current().kind != Kind::kName) unexpected("a name");
  return advance().text;
}

NodePtr ExpressionParser::make_node(NodeKind kind, std::vector<NodePtr> children, std::string name) const {
  auto node = std::make_unique<Node>();
  node->kind = kind;
  node->line = current().line;
  node->name = std::move(name);
  node->children = std::move(children);
  update_depth(*node);
  return node;
}

void ExpressionParser::update_depth(Node& node) const {
  int depth = 0;
  for (const NodePtr& part : node.children)
    if (part) depth = std::max(depth, part->depth);
  for (const auto& [name, part] : node.kwargs) depth = std::max(depth, part->depth);
  for (const Body& body : node.bodies)
    for (const NodePtr& part : body) depth = std::max(depth, part->depth);
  node.depth = depth + 1;
  if (node.depth > kMaxDepth)
    budget_.fail(fmt::format("parts of a template must be nested at most {} deep", kMaxDepth), "more",
                 "assign parts of it to variables");
}

namespace {

template <typename... Nodes>
std::vector<NodePtr> children_of(Nodes... nodes) {
  std::vector<NodePtr> all;
  (all.push_back(std::move(nodes)), ...);
  return all;
}

}  // namespace

NodePtr ExpressionParser::tuple(bool conditional) {
  const auto one = [&] { return conditional ? expression() : disjunction(); };
  NodePtr first = one();
  if (!current().is(",")) return first;
  NodePtr node = make_node(NodeKind::kList, children_of(std::move(first)));
  node->flag = true;
  while (accept(",")) {
    if (current().kind == Kind::kBlockEnd || current().kind == Kind::kPrintEnd || current().is(")")) break;
    node->children.push_back(one());
  }
  update_depth(*node);
  return node;
}

NodePtr ExpressionParser::expression() {
  const DepthGuard guard(*this);
  NodePtr value = disjunction();
  while (current().is_name("if")) {
    advance();
    NodePtr condition = disjunction();
    NodePtr otherwise;
    if (current().is_name("else")) {
      advance();
      otherwise = expression();
    }
    value = make_node(NodeKind::kConditional,
                      children_of(std::move(condition), std::move(value), std::move(otherwise)));
  }
  return value;
}

NodePtr ExpressionParser::disjunction() {
  NodePtr left = conjunction();
  while (current().is_name("or")) {
    advance();
    NodePtr right = conjunction();
    left = make_node(NodeKind::kOr, children_of(std::move(left), std::move(right)));
  }
  return left;
}

NodePtr ExpressionParser::conjunction() {
  NodePtr left = negation();
  while (current().is_name("and")) {
    advance();
    NodePtr right = negation();
    left = make_node(NodeKind::kAnd, children_of(std::move(left), std::move(right)));
  }
  return left;
}

NodePtr ExpressionParser::negation() {
  if (!current().is_name("not")) return comparison();
  const DepthGuard guard(*this);
  advance();
  return make_node(NodeKind::kNot, children_of(negation()));
}

NodePtr ExpressionParser::comparison() {
  NodePtr node = make_node(NodeKind::kCompare, children_of(sum()));
  for (std::string op = comparison_of(current()); !op.empty(); op = comparison_of(current())) {
    advance();
    if (op == "not") {
      if (!current().is_name("in")) unexpected("'in'");
      advance();
      op = "not in";
    }
    node->names.push_back(op);
    node->children.push_back(sum());
  }
  if (node->names.empty()) return std::move(node->children[0]);
  update_depth(*node);
  return node;
}

NodePtr ExpressionParser::chain(NodePtr (ExpressionParser::*operand)(),
                                std::initializer_list<std::string_view> ops) {
  NodePtr left = (this->*operand)();
  while (true) {
    const auto op = std::ranges::find_if(ops, [&](std::string_view each) { return current().is(each); });
    if (op == ops.end()) return left;
    advance();
    NodePtr right = (this->*operand)();
    left = make_node(NodeKind::kBinary, children_of(std::move(left), std::move(right)), std::string(*op));
  }
}

NodePtr ExpressionParser::sum() { return chain(&ExpressionParser::concatenation, {"+", "-"}); }

NodePtr ExpressionParser::concatenation() {
  NodePtr node = make_node(NodeKind::kConcat, children_of(product()));
  while (accept("~")) node->children.push_back(product());
  if (node->children.size() == 1) return std::move(node->children[0]);
  update_depth(*node);
  return node;
}

NodePtr ExpressionParser::product() {
  NodePtr left = unary(true);
  while (current().is("*") || current().is("/") || current().is("//") || current().is("%") ||
         current().is("**")) {
    if (current().is("**")) reject("the power operator **");
    std::string op = advance().text;
    NodePtr right = unary(true);
    left = make_node(NodeKind::kBinary, children_of(std::move(left), std::move(right)), std::move(op));
  }
  return left;
}

NodePtr ExpressionParser::unary(bool with_filters) {
  const DepthGuard guard(*this);
  NodePtr node;
  if (current().is("-") || current().is("+")) {
    const NodeKind kind = advance().text == "-" ? NodeKind::kNegative : NodeKind::kPositive;
    node = make_node(kind, children_of(unary(false)));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filters(std::move(node)) : std::move(node);
}

NodePtr ExpressionParser::primary() {
  const Token token = current();
  const auto constant = [&](Value value) {
    NodePtr node = make_node(NodeKind::kConstant);
    node->constant = std::move(value);
    return node;
  };
  if (token.kind == Kind::kName) {
    advance();
    if (token.text == "true" || token.text == "True") return constant({true});
    if (token.text == "false" || token.text == "False") return constant({false});
    if (token.text == "none" || token.text == "None") return constant(Value::none());
    return make_node(NodeKind::kName, {}, token.text);
  }
  if (token.kind == Kind::kString) {
    std::string text;
    while (current().kind == Kind::kString) text += advance().text;
    return constant(Value::text(text));
  }
  if (token.kind == Kind::kInteger) return constant(Value::integer(std::stoll(advance().text)));
  if (token.kind == Kind::kFloat) return constant({std::stod(advance().text)});
  return bracketed();
}

NodePtr ExpressionParser::bracketed() {
  const DepthGuard guard(*this);
  if (accept("(")) {
    if (accept(")")) {
      NodePtr empty = make_node(NodeKind::kList);
      empty->flag = true;
      return empty;
    }
    NodePtr inner = tuple();
    expect(")");
    return inner;
  }
  if (accept("[")) return list();
  if (accept("{")) return mapping();
  unexpected("an expression");
}

NodePtr ExpressionParser::list() {
  NodePtr node = make_node(NodeKind::kList);
  while (!accept("]")) {
    if (!node->children.empty()) expect(",");
    if (accept("]")) break;
    node->children.push_back(expression());
  }
  update_depth(*node);
  return node;
}

NodePtr ExpressionParser::mapping() {
  NodePtr node = make_node(NodeKind::kMapping);
  while (!accept("}")) {
    if (!node->children.empty()) expect(",");
    if (accept("}")) break;
    node->children.push_back(expression());
    expect(":");
    node->children.push_back(expression());
  }
  update_depth(*node);
  return node;
}

NodePtr ExpressionParser::postfix(NodePtr node) {
  while (true) {
    if (accept(".")) {
      if (current().kind == Kind::kInteger) {
        NodePtr number = primary();
        node = make_node(NodeKind::kItem, children_of(std::move(node), std::move(number)));
      } else {
        std::string name = expect_name();
        node = make_node(NodeKind::kAttribute, children_of(std::move(node)), std::move(name));
      }
    } else if (accept("[")) {
      node = subscript(std::move(node));
    } else if (current().is("(")) {
      node = make_node(NodeKind::kCall, children_of(std::move(node)));
      arguments(*node);
    } else {
      return node;
    }
  }
}

NodePtr ExpressionParser::subscript(NodePtr node) {
  const auto bound = [&]() -> NodePtr {
    return current().is(":") || current().is("]") ? nullptr : expression();
  };
  NodePtr first = bound();
  if (!current().is(":")) {
    if (!first) unexpected("an expression");
    expect("]");
    return make_node(NodeKind::kItem, children_of(std::move(node), std::move(first)));
  }
  advance();
  NodePtr stop = bound();
  NodePtr step = accept(":") ? bound() : nullptr;
  expect("]");
  return make_node(NodeKind::kSlice,
                   children_of(std::move(node), std::move(first), std::move(stop), std::move(step)));
}

NodePtr ExpressionParser::filters(NodePtr node) {
  while (true) {
    if (accept("|")) {
      std::string name = expect_name();
      node = make_node(NodeKind::kFilter, children_of(std::move(node)), std::move(name));
      if (current().is("(")) arguments(*node);
    } else if (current().is_name("is")) {
      advance();
      node = test(std::move(node));
    } else if (current().is("(")) {
      node = make_node(NodeKind::kCall, children_of(std::move(node)));
      arguments(*node);
    } else {
      return node;
    }
  }
}

NodePtr ExpressionParser::test(NodePtr node) {
  const bool negated = current().is_name("not");
  if (negated) advance();
  std::string name = expect_name();
  node = make_node(NodeKind::kTest, children_of(std::move(node)), std::move(name));
  node->flag = negated;
  const Token& next = current();
  const bool value = next.kind == Kind::kName || next.kind == Kind::kString || next.kind == Kind::kInteger ||
                     next.kind == Kind::kFloat || next.is("[") || next.is("{");
  if (next.is("(")) {
    arguments(*node);
  } else if (value && !next.is_name("else") && !next.is_name("or") && !next.is_name("and")) {
    if (next.is_name("is")) unexpected("no second test");
    NodePtr argument = primary();
    node->children.push_back(postfix(std::move(argument)));
    update_depth(*node);
  }
  return node;
}

void ExpressionParser::arguments(Node& node) {
  const DepthGuard guard(*this);
  expect("(");
  bool first = true;
  while (!accept(")")) {
    if (!first) expect(",");
    if (accept(")")) break;
    first = false;
    if (current().is("*") || current().is("**")) reject("an argument with a star");
    NodePtr value = expression();
    if (value->kind == NodeKind::kName && accept("=")) {
      std::string name = std::move(value->name);
      node.kwargs.emplace_back(std::move(name), expression());
    } else if (!node.kwargs.empty()) {
      unexpected("a keyword argument");
    } else {
      node.children.push_back(std::move(value));
    }
  }
  update_depth(node);
}

}  // namespace colonnade::chat_template
