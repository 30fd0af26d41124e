// The syntax tree of a chat template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "colonnade/chat_template/lexer.h"

namespace colonnade::chat_template {

enum class NodeKind {
  // expressions
  kConstant,   ///< constant
  kName,       ///< name
  kList,       ///< [children]; `flag`: a tuple
  kMapping,    ///< {children}: key, value, key, ...
  kAttribute,  ///< children[0].name
  kItem,       ///< children[0][children[1]]
  kSlice,      ///< children[0][children[1]:children[2]:children[3]]; each bound may be null
  kCall,       ///< children[0](children[1], ..., kwargs)
  kFilter,     ///< children[0] | name(children[1], ..., kwargs)
  kTest,       ///< children[0] is name(children[1], ...); `flag`: negated
  kNot,
  kNegative,
  kPositive,
  kAnd,
  kOr,
  kConditional,  ///< children[1] if children[0] else children[2], which may be null
  kBinary,       ///< children[0] name children[1]
  kCompare,      ///< children[0] names[0] children[1] names[1] children[2] ...
  kConcat,       ///< children[0] ~ children[1] ~ ...
  // statements
  kText,        ///< constant
  kPrint,       ///< {{ children[0] }}
  kSet,         ///< set names = children[0]; for a namespace, names[0].name
  kSetBlock,    ///< set names[0]: bodies[0]
  kFor,         ///< for names in children[0] if children[1], which may be null: bodies[0], else bodies[1]
  kIf,          ///< if children[i]: bodies[i]; else: the last body
  kMacro,       ///< macro name(names = children, each default may be null): bodies[0]
  kGeneration,  ///< bodies[0]
  kBreak,
  kContinue,
};

using Body = std::vector<std::unique_ptr<Node>>;

struct Node {
  NodeKind kind = NodeKind::kConstant;
  int line = 1;
  int depth = 1;  ///< height of this subtree
  bool flag = false;
  std::string name;
  Value constant;
  std::vector<std::string> names;
  std::vector<std::unique_ptr<Node>> children;
  std::vector<std::pair<std::string, std::unique_ptr<Node>>> kwargs;
  std::vector<Body> bodies;
};

/// Parses a template. Throws DataError that names the line for invalid or unsupported Jinja.
Body parse(std::string_view source, Budget& budget);

}  // namespace colonnade::chat_template
