// See renderer.h.
#include "colonnade/chat_template/renderer.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>

#include "colonnade/chat_template/library.h"
#include "colonnade/chat_template/value_provenance.h"

namespace colonnade::chat_template {
namespace {

constexpr int kMaxDepth = 500;  // nested statements, expressions and calls; published templates need about 30

constexpr std::string_view kFunctions[] = {"raise_exception", "namespace", "range", "dict"};

/// The variables of a block, which shadow outer ones.
struct Scope {
  explicit Scope(Scope* outer) : outer(outer) {}
  Variables values;
  Scope* outer;
};

enum class Flow { kNext, kBreak, kContinue };

class Renderer {
 public:
  Renderer(Variables variables, Budget& budget) : budget_(budget) {
    top_.values = std::move(variables);
    const auto messages = top_.values.find("messages");
    if (messages == top_.values.end() || messages->second.list() == nullptr) return;
    messages->second = with_provenance(*messages->second.list());
  }

  Rendering run(const Body& body) {
    execute(body);
    return std::move(out_);
  }

 private:
  /// The messages with provenance. Roles and names get none: templates write them in headers, so they do not
  /// locate the words of a message.
  [[nodiscard]] Value with_provenance(const List& all) {
    std::vector<Value> messages;
    for (std::size_t i = 0; i < all.items.size(); ++i) {
      std::vector<std::pair<std::string, Value>> items = all.items[i].mapping()->items;
      for (auto& [key, value] : items)
        if (key != "role" && key != "name") value = attributed(value, i, budget_);
      messages.push_back(Value::mapping(std::move(items), budget_));
      message_numbers_.emplace(messages.back().mapping(), i);
    }
    return messages_ = Value::list(std::move(messages), budget_);
  }

  struct DepthGuard {
    explicit DepthGuard(Renderer& renderer) : depth(renderer.depth_) {
      if (++depth > kMaxDepth)
        renderer.budget_.fail(fmt::format("calls must be nested at most {} deep", kMaxDepth), "more",
                              "fix the template");
    }
    DepthGuard(const DepthGuard&) = delete;
    DepthGuard& operator=(const DepthGuard&) = delete;
    ~DepthGuard() { --depth; }
    int& depth;
  };

  /// Opens a scope for the lifetime of the object.
  struct InnerScope {
    InnerScope(Renderer& renderer, Scope* outer) : scope(outer), renderer(renderer), before(renderer.scope_) {
      renderer.budget_.spend(4 * kStep);
      renderer.scope_ = &scope;
    }
    InnerScope(const InnerScope&) = delete;
    InnerScope& operator=(const InnerScope&) = delete;
    ~InnerScope() { renderer.scope_ = before; }
    Scope scope;
    Renderer& renderer;
    Scope* before;
  };

  Flow execute(const Body& body) {
    for (const auto& node : body)
      if (const Flow flow = execute(*node); flow != Flow::kNext) return flow;
    return Flow::kNext;
  }

  Flow execute(const Node& node) {
    const DepthGuard guard(*this);
    budget_.line = node.line;
    budget_.spend(kStep);
    switch (node.kind) {
      case NodeKind::kText:
        write(node.constant);
        break;
      case NodeKind::kPrint:
        write(value(*node.children[0]));
        break;
      case NodeKind::kSet:
        set(node);
        break;
      case NodeKind::kSetBlock:
        scope_->values.insert_or_assign(node.names[0], capture(node.bodies[0], scope_));
        break;
      case NodeKind::kFor:
        loop(node);
        break;
      case NodeKind::kIf:
        return branch(node);
      case NodeKind::kMacro:
        scope_->values.insert_or_assign(node.name, Value(Callable{&node, node.name}));
        break;
      case NodeKind::kGeneration:
        generation(node);
        break;
      case NodeKind::kBreak:
        return Flow::kBreak;
      default:
        return Flow::kContinue;
    }
    return Flow::kNext;
  }

  void write(const Value& value) {
    const std::string text = text_of(value, budget_);
    budget_.spend(text.size());
    append(target_->sources, provenance_of(value, text, budget_), target_->text.size());
    target_->text += text;
  }

  /// The output of a body as a string.
  Value capture(const Body& body, Scope* outer) {
    const InnerScope inner(*this, outer);
    Rendering written;
    Rendering* before = std::exchange(target_, &written);
    execute(body);
    target_ = before;
    return Value::text(std::move(written.text)).with(std::move(written.sources));
  }

  Value concatenated(const Node& node) {
    Rendering all;
    for (const auto& part : node.children) {
      const Value each = value(*part);
      const std::string text = text_of(each, budget_);
      append(all.sources, provenance_of(each, text, budget_), all.text.size());
      all.text += text;
    }
    return Value::text(std::move(all.text)).with(std::move(all.sources));
  }

  Value filtered(const Node& node) {
    const Value given = value(*node.children[0]);
    Arguments all = arguments(node, "|" + node.name);
    Value result = filter(node.name, given, all);
    const bool joins = node.name == "join" && given.list() != nullptr && all.get(1, "attribute") == nullptr;
    if (!joins) return derived(std::move(result), given, all.values, budget_);
    const Value* between = all.get(0, "d");
    return joined(std::move(result), given, between != nullptr ? *between : Value::text(""), budget_);
  }

  void set(const Node& node) {
    Value given = value(*node.children[0]);
    if (!node.name.empty()) {
      const Value space = look_up(node.names[0]);
      if (space.as<Namespace*>() == nullptr)
        budget_.fail(fmt::format("'{}' must be a namespace for .{} to be set", node.names[0], node.name),
                     space.kind(), "make it one by namespace()");
      return set_attribute(**space.as<Namespace*>(), node.name, std::move(given));
    }
    bind(node.names, std::move(given));
  }

  void set_attribute(Namespace& space, const std::string& name, Value given) {
    if (name.starts_with("_"))
      budget_.fail("names of a namespace must not begin with _", name, "use another name");
    space.items.insert_or_assign(name, std::move(given));
  }

  /// Assigns the value to one name, or its items to several names.
  void bind(const std::vector<std::string>& names, Value given) {
    if (names.size() == 1) {
      scope_->values.insert_or_assign(names[0], std::move(given));
      return;
    }
    const std::vector<Value> items = items_of(given, budget_);
    if (items.size() != names.size())
      budget_.fail(fmt::format("an assignment to {} names requires as many values", names.size()),
                   fmt::format("{}", items.size()), "fix the template or the data");
    for (std::size_t i = 0; i < names.size(); ++i) scope_->values.insert_or_assign(names[i], items[i]);
  }

  Flow branch(const Node& node) {
    for (std::size_t i = 0; i < node.children.size(); ++i)
      if (value(*node.children[i]).is_truthy()) return execute(node.bodies[i]);
    return node.bodies.size() > node.children.size() ? execute(node.bodies.back()) : Flow::kNext;
  }

  /// A function that appends to `loop` the next of `items` for which the condition of its node holds.
  std::function<bool()> item_source(const Node& node, Loop& loop, std::vector<Value> items) {
    return [this, &node, &loop, items = std::move(items), outer = scope_, at = std::size_t{0},
            running = false]() mutable {
      if (running)
        budget_.fail("a loop's condition must not read the loop's items", "it", "fix the template");
      running = true;
      bool found = false;
      while (!found && at < items.size()) {
        Value& each = items[at++];
        found = !node.children[1] || condition_holds(node, each, outer);
        if (found) loop.items.push_back(std::move(each));
      }
      running = false;
      return found;
    };
  }

  /// Whether the condition of a loop holds for an item.
  bool condition_holds(const Node& loop, const Value& item, Scope* outer) {
    const InnerScope inner(*this, outer);
    bind(loop.names, item);
    return value(*loop.children[1]).is_truthy();
  }

  void loop(const Node& node) {
    const Value given = value(*node.children[0]);
    const auto shared = std::make_shared<Loop>();
    Loop& loop = *shared;
    const List* once =
        given.list() != nullptr && given.list()->kind == ListKind::kGenerator ? given.list() : nullptr;
    const bool has_items = once != nullptr && once->num_consumed(budget_) < once->items.size();
    loop.fetch_next = item_source(node, loop, items_of(given, budget_));
    if (has_items) once->consumed = List::kUnknown;
    bool completed = false;  // whether an iteration reached the end of the body: decides Jinja's else
    bool left = false;       // by break
    for (; !left && loop.has_item(loop.index); ++loop.index) {
      const InnerScope inner(*this, scope_);
      scope_->values.insert_or_assign("loop", Value(shared));
      bind(node.names, loop.items[loop.index]);
      const Flow flow = iterate(node, message_of(loop.items[loop.index]));
      left = flow == Flow::kBreak;
      completed = completed || flow == Flow::kNext;
    }
    loop.fetch_next = nullptr;
    if (once != nullptr && !left) once->consumed = once->items.size();
    if (!completed) {
      const InnerScope inner(*this, scope_);
      execute(node.bodies[1]);
    }
  }

  Flow iterate(const Node& node, std::optional<std::size_t> message) {
    if (target_ != &out_) return execute(node.bodies[0]);
    const std::size_t number = out_.iterations.size(), begin = out_.text.size();
    out_.iterations.push_back({message, {begin, begin}, out_.sources.size(), 0});
    const Flow flow = execute(node.bodies[0]);
    out_.iterations[number].span.end = out_.text.size();
    out_.iterations[number].end_source = out_.sources.size();
    return flow;
  }

  [[nodiscard]] std::optional<std::size_t> message_of(const Value& item) const {
    const auto found = message_numbers_.find(item.mapping());
    return found != message_numbers_.end() ? std::optional(found->second) : std::nullopt;
  }

  void generation(const Node& node) {
    if (target_ != &out_)
      budget_.fail("{% generation %} must write directly to the text", "it in a macro or {% set %}",
                   "move it out");
    const InnerScope inner(*this, scope_);
    const std::size_t begin = out_.text.size();
    execute(node.bodies[0]);
    out_.generation.push_back({begin, out_.text.size()});
  }

  [[nodiscard]] Value look_up(const std::string& name) const {
    for (const Scope* scope = scope_; scope != nullptr; scope = scope->outer)
      if (const auto found = scope->values.find(name); found != scope->values.end()) return found->second;
    if (std::ranges::find(kFunctions, name) != std::end(kFunctions)) return Value(Callable{nullptr, name});
    return Value::undefined(name);
  }

  Value value(const Node& node) {
    const DepthGuard guard(*this);
    budget_.spend(kStep);
    budget_.line = node.line;
    switch (node.kind) {
      case NodeKind::kConstant:
        return node.constant;
      case NodeKind::kName:
        return look_up(node.name);
      case NodeKind::kList:
        return Value::list(values(node, 0), budget_, node.flag ? ListKind::kTuple : ListKind::kList);
      case NodeKind::kMapping:
        return mapping(node);
      case NodeKind::kAttribute:
        return attribute(value(*node.children[0]), node.name, budget_);
      case NodeKind::kItem: {
        const Value of = value(*node.children[0]);
        return item(of, value(*node.children[1]), budget_);
      }
      case NodeKind::kSlice:
        return sliced(node);
      case NodeKind::kCall:
        return call(node);
      case NodeKind::kFilter:
        return filtered(node);
      default:
        return operation(node);
    }
  }

  Value operation(const Node& node) {
    switch (node.kind) {
      case NodeKind::kTest: {
        const Value given = value(*node.children[0]);
        Arguments all = arguments(node, "is " + node.name);
        return {test(node.name, given, all) != node.flag};
      }
      case NodeKind::kNot:
        return {!value(*node.children[0]).is_truthy()};
      case NodeKind::kNegative:
      case NodeKind::kPositive: {
        const bool negative = node.kind == NodeKind::kNegative;
        const Value given = value(*node.children[0]);
        if (const double* number = given.as<double>()) return {negative ? -*number : *number};
        return binary(negative ? "-" : "+", Value::integer(0), given, budget_);
      }
      case NodeKind::kAnd:
      case NodeKind::kOr: {
        Value left = value(*node.children[0]);
        return left.is_truthy() == (node.kind == NodeKind::kOr) ? left : value(*node.children[1]);
      }
      case NodeKind::kConditional:
        if (value(*node.children[0]).is_truthy()) return value(*node.children[1]);
        return node.children[2] ? value(*node.children[2]) : Value::undefined("an if without else");
      case NodeKind::kBinary: {
        const Value left = value(*node.children[0]), right = value(*node.children[1]);
        return added(binary(node.name, left, right, budget_), left, right, budget_);
      }
      case NodeKind::kCompare:
        return compared(node);
      default:
        return concatenated(node);
    }
  }

  Value compared(const Node& node) {
    Value left = value(*node.children[0]);
    for (std::size_t i = 0; i < node.names.size(); ++i) {
      Value right = value(*node.children[i + 1]);
      if (!compare(node.names[i], left, right, budget_)) return {false};
      left = std::move(right);
    }
    return {true};
  }

  std::vector<Value> values(const Node& node, std::size_t first) {
    std::vector<Value> all;
    for (std::size_t i = first; i < node.children.size(); ++i) all.push_back(value(*node.children[i]));
    budget_.spend(2 * kStep * all.size());
    return all;
  }

  Value mapping(const Node& node) {
    std::vector<std::pair<std::string, Value>> items;
    for (std::size_t i = 0; i < node.children.size(); i += 2) {
      const Value key = value(*node.children[i]);
      if (key.text() == nullptr || key.is_safe())
        budget_.fail("keys of a mapping must be strings here", key.kind(), "fix it");
      set_item(items, *key.text(), value(*node.children[i + 1]));
    }
    return Value::mapping(std::move(items), budget_);
  }

  void set_item(std::vector<std::pair<std::string, Value>>& items, const std::string& key, Value given) {
    budget_.spend(items.size() + 4);
    for (auto& [name, old] : items)
      if (name == key) {
        old = std::move(given);
        return;
      }
    items.emplace_back(key, std::move(given));
  }

  Value sliced(const Node& node) {
    const Value of = value(*node.children[0]);
    std::optional<Value> bounds[3];
    for (std::size_t i = 0; i < 3; ++i)
      if (node.children[i + 1]) bounds[i] = value(*node.children[i + 1]);
    const auto bound = [&](std::size_t i) { return bounds[i] ? &*bounds[i] : nullptr; };
    return derived(slice(of, bound(0), bound(1), bound(2), budget_), of, {}, budget_);
  }

  Arguments arguments(const Node& node, std::string of) {
    Arguments all(budget_, std::move(of));
    all.values = values(node, 1);
    for (const auto& [name, part] : node.kwargs) all.kwargs.emplace_back(name, value(*part));
    budget_.line = node.line;
    return all;
  }

  Value call(const Node& node) {
    const Node& callee = *node.children[0];
    if (callee.kind == NodeKind::kAttribute) {
      const Value of = value(*callee.children[0]);
      const Namespace* const* space = of.as<Namespace*>();
      if (of.is_undefined() || space != nullptr || of.as<std::shared_ptr<Loop>>() != nullptr)
        return call_attribute(of, node);
      Arguments all = arguments(node, "." + callee.name + "()");
      Value result = method(callee.name, of, all);
      all.check_all_read();
      const bool joins = callee.name == "join" && of.text() != nullptr && all.values[0].list() != nullptr;
      return joins ? joined(std::move(result), all.values[0], of, budget_)
                   : derived(std::move(result), of, all.values, budget_);
    }
    const Value function = value(callee);
    return call_value(function, node);
  }

  /// Calls a macro in a namespace, or loop.cycle.
  Value call_attribute(const Value& of, const Node& node) {
    const std::string& name = node.children[0]->name;
    const auto* loop = of.as<std::shared_ptr<Loop>>();
    if (loop == nullptr || name != "cycle") return call_value(attribute(of, name, budget_), node);
    Arguments all = arguments(node, "loop.cycle()");
    if (all.values.empty()) budget_.fail("loop.cycle needs values", "none", "give them");
    return all.values[(*loop)->index % all.values.size()];
  }

  Value call_value(const Value& callee, const Node& node) {
    const Callable* function = callee.as<Callable>();
    if (function == nullptr) {
      const bool clock =
          node.children[0]->kind == NodeKind::kName && node.children[0]->name == "strftime_now";
      budget_.fail("a callee must be a supported function", callee.kind(),
                   clock ? "write a date: the data of a run must not depend on the day" : "fix the template");
    }
    Arguments all = arguments(node, function->name + "()");
    if (function->macro != nullptr) return call_macro(*function->macro, all);
    if (function->name == "raise_exception")
      budget_.fail("the template rejects the conversation",
                   fmt::format("'{}'", text_of(all.require(0, "message"), budget_)), "fix the conversation");
    if (function->name == "namespace") return make_namespace(all);
    if (function->name == "range") return range(all);
    std::vector<std::pair<std::string, Value>> items = mapping_argument(all);
    for (const auto& [key, each] : all.kwargs) set_item(items, key, each);
    return Value::mapping(std::move(items), budget_);
  }

  /// The members of the optional mapping argument of namespace() and dict().
  std::vector<std::pair<std::string, Value>> mapping_argument(Arguments& all) {
    if (all.values.empty()) return {};
    if (all.values.size() > 1 || all.values[0].mapping() == nullptr)
      all.fail("it accepts keyword arguments and one mapping here", all.values[0]);
    budget_.spend(4 * all.values[0].mapping()->items.size());
    return all.values[0].mapping()->items;
  }

  Value make_namespace(Arguments& all) {
    budget_.spend(64);
    Namespace& space = spaces_.emplace_back();
    for (auto& [key, each] : mapping_argument(all)) set_attribute(space, key, each);
    for (auto& [key, each] : all.kwargs) set_attribute(space, key, each);
    return {&space};
  }

  Value call_macro(const Node& macro, Arguments& all) {
    const InnerScope inner(*this, &top_);
    for (std::size_t i = 0; i < macro.names.size(); ++i) {
      const Value* given = all.get(i, macro.names[i]);
      scope_->values.insert_or_assign(macro.names[i], given != nullptr    ? *given
                                                      : macro.children[i] ? value(*macro.children[i])
                                                                          : Value::undefined(macro.names[i]));
    }
    all.check_all_read();
    return capture(macro.bodies[0], scope_);
  }

  Budget& budget_;
  Scope top_{nullptr};
  Scope* scope_ = &top_;
  std::deque<Namespace> spaces_;
  Value messages_;
  std::unordered_map<const Mapping*, std::size_t> message_numbers_;
  Rendering out_;
  Rendering* target_ = &out_;  // or the capture of a macro or {% set %}
  int depth_ = 0;
};

}  // namespace

Rendering render(const Body& body, Variables variables, Budget& budget) {
  return Renderer(std::move(variables), budget).run(body);
}

}  // namespace colonnade::chat_template
