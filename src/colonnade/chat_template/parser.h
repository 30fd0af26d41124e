// Recursive descent parser of expressions. Statements are in parser.cpp.
#pragma once

#include <initializer_list>

#include "colonnade/chat_template/ast.h"

namespace colonnade::chat_template {

using NodePtr = std::unique_ptr<Node>;

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, Budget& budget) : budget_(budget), tokens_(std::move(tokens)) {}

 protected:
  /// One expression, or a tuple of comma-separated ones. `conditional`: whether `a if b else c` is allowed.
  NodePtr tuple(bool conditional = true);
  NodePtr expression();
  NodePtr disjunction();

  [[nodiscard]] const Token& current() const { return tokens_[at_]; }
  Token advance() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool accept(std::string_view op);
  void expect(std::string_view op);
  std::string expect_name();
  [[noreturn]] void unexpected(const std::string& wanted) const;
  [[noreturn]] void reject(const std::string& construct) const;
  [[nodiscard]] NodePtr make_node(NodeKind kind, std::vector<NodePtr> children = {},
                                  std::string name = {}) const;
  /// Updates `depth` of a node. Throws DataError for a tree that is too deep.
  void update_depth(Node& node) const;

  Budget& budget_;

 private:
  /// Counts the recursion depth of the parser.
  struct DepthGuard;

  NodePtr conjunction();
  NodePtr negation();
  NodePtr comparison();
  NodePtr sum();
  NodePtr concatenation();
  NodePtr product();
  NodePtr unary(bool with_filters);
  NodePtr primary();
  NodePtr bracketed();
  NodePtr list();
  NodePtr mapping();
  NodePtr postfix(NodePtr node);
  NodePtr subscript(NodePtr node);
  NodePtr filters(NodePtr node);
  NodePtr test(NodePtr node);
  void arguments(Node& node);
  /// Parses the left-associative chain: operand op operand op ...
  NodePtr chain(NodePtr (ExpressionParser::*operand)(), std::initializer_list<std::string_view> ops);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace colonnade::chat_template
