// A chat template as a tree.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "colonnade/chat_template/lexer.h"

namespace colonnade::chat_template {

enum class What {
  // expressions
  kConstant,   ///< constant
  kName,       ///< name
  kList,       ///< parts; `flag`: a tuple
  kMapping,    ///< parts: key, value, key, ...
  kAttribute,  ///< parts[0].name
  kItem,       ///< parts[0][parts[1]]
  kSlice,      ///< parts[0][parts[1]:parts[2]:parts[3]], each of the three perhaps null
  kCall,       ///< parts[0](parts[1], ..., named)
  kFilter,     ///< parts[0] | name(parts[1], ..., named)
  kTest,       ///< parts[0] is name(parts[1], ...); `flag`: is not
  kNot,
  kNegative,
  kPositive,
  kAnd,
  kOr,
  kChoice,   ///< parts[1] if parts[0] else parts[2], which may be null
  kBinary,   ///< parts[0] name parts[1]
  kCompare,  ///< parts[0] names[0] parts[1] names[1] parts[2] ...
  kConcat,   ///< parts[0] ~ parts[1] ~ ...
  // statements
  kText,        ///< constant
  kPrint,       ///< {{ parts[0] }}
  kSet,         ///< set names = parts[0]; of a namespace: names[0].name
  kSetBlock,    ///< set names[0]: bodies[0]
  kFor,         ///< for names in parts[0] if parts[1] (or null): bodies[0], else bodies[1]
  kIf,          ///< if parts[i]: bodies[i]; else the last of the bodies
  kMacro,       ///< macro name(names = parts, each perhaps null): bodies[0]
  kGeneration,  ///< bodies[0]
  kBreak,
  kContinue,
};

using Body = std::vector<std::unique_ptr<Node>>;

struct Node {
  What what = What::kConstant;
  int line = 1;
  int depth = 1;  ///< of the tree below
  bool flag = false;
  std::string name;
  Value constant;
  std::vector<std::string> names;
  std::vector<std::unique_ptr<Node>> parts;
  std::vector<std::pair<std::string, std::unique_ptr<Node>>> named;
  std::vector<Body> bodies;
};

/// Throws DataError that names the line, for what is no Jinja and for what is not understood here.
Body parse(std::string_view source, Budget& budget);

}  // namespace colonnade::chat_template
