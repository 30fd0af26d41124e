// Expressions of a chat template: a recursive descent. Statements are in parser.cpp.
#pragma once

#include <initializer_list>

#include "colonnade/chat_template/ast.h"

namespace colonnade::chat_template {

using NodePtr = std::unique_ptr<Node>;

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, Budget& budget) : budget_(budget), tokens_(std::move(tokens)) {}

 protected:
  /// Values with commas between them are a tuple. `choices`: whether `a if b else c` is taken.
  NodePtr tuple(bool choices = true);
  NodePtr expression();
  NodePtr disjunction();

  [[nodiscard]] const Token& now() const { return tokens_[at_]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool take_if(std::string_view op);
  void expect(std::string_view op);
  std::string expect_name();
  [[noreturn]] void unexpected(const std::string& wanted) const;
  [[noreturn]] void refuse(const std::string& construct) const;
  [[nodiscard]] NodePtr make(What what, std::vector<NodePtr> parts = {}, std::string name = {}) const;
  /// Throws DataError for a tree that is too deep.
  void settle(Node& node) const;

  Budget& budget_;

 private:
  /// Counts how deep the parser is in itself.
  struct Deeper;

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
  /// left op right op ..., of one kind of operand.
  NodePtr chain(NodePtr (ExpressionParser::*operand)(), std::initializer_list<std::string_view> ops);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace colonnade::chat_template
