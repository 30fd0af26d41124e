// See renderer.h.
#include "colonnade/chat_template/renderer.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>

#include "colonnade/chat_template/library.h"
#include "colonnade/chat_template/traced.h"

namespace colonnade::chat_template {
namespace {

constexpr int kMostDepth = 500;  // of what is under way; templates of models need about 30

constexpr std::string_view kFunctions[] = {"raise_exception", "namespace", "range", "dict"};

/// Variables of a block, which hide those around it.
struct Scope {
  explicit Scope(Scope* outer) : outer(outer) {}
  Variables values;
  Scope* outer;
};

enum class Flow { kOn, kBreak, kContinue };

class Renderer {
 public:
  Renderer(Variables variables, Budget& budget) : budget_(budget) {
    top_.values = std::move(variables);
    const auto messages = top_.values.find("messages");
    if (messages == top_.values.end() || messages->second.list() == nullptr) return;
    messages->second = out_of_messages(*messages->second.list());
  }

  Rendering run(const Body& body) {
    execute(body);
    return std::move(out_);
  }

 private:
  /// The messages, whose members know where they come from. Headers write roles and names, so that these say
  /// nothing of where a message's words are.
  [[nodiscard]] Value out_of_messages(const List& all) {
    std::vector<Value> messages;
    for (std::size_t i = 0; i < all.items.size(); ++i) {
      std::vector<std::pair<std::string, Value>> items = all.items[i].mapping()->items;
      for (auto& [key, value] : items)
        if (key != "role" && key != "name") value = out_of_message(value, i, budget_);
      messages.push_back(Value::mapping(std::move(items), budget_));
      numbers_.emplace(messages.back().mapping(), i);
    }
    return messages_ = Value::list(std::move(messages), budget_);
  }

  struct Deeper {
    explicit Deeper(Renderer& renderer) : depth(renderer.depth_) {
      if (++depth > kMostDepth)
        renderer.budget_.fail(fmt::format("calls must lie at most {} deep in each other", kMostDepth), "more",
                              "mend the template");
    }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    ~Deeper() { --depth; }
    int& depth;
  };

  /// A block with variables of its own.
  struct Inner {
    Inner(Renderer& renderer, Scope* outer) : scope(outer), renderer(renderer), before(renderer.scope_) {
      renderer.budget_.spend(4 * kStep);
      renderer.scope_ = &scope;
    }
    Inner(const Inner&) = delete;
    Inner& operator=(const Inner&) = delete;
    ~Inner() { renderer.scope_ = before; }
    Scope scope;
    Renderer& renderer;
    Scope* before;
  };

  Flow execute(const Body& body) {
    for (const auto& node : body)
      if (const Flow flow = execute(*node); flow != Flow::kOn) return flow;
    return Flow::kOn;
  }

  Flow execute(const Node& node) {
    const Deeper deeper(*this);
    budget_.line = node.line;
    budget_.spend(kStep);
    switch (node.what) {
      case What::kText:
        write(node.constant);
        break;
      case What::kPrint:
        write(value(*node.parts[0]));
        break;
      case What::kSet:
        set(node);
        break;
      case What::kSetBlock:
        scope_->values.insert_or_assign(node.names[0], apart(node.bodies[0], scope_));
        break;
      case What::kFor:
        loop(node);
        break;
      case What::kIf:
        return branch(node);
      case What::kMacro:
        scope_->values.insert_or_assign(node.name, Value(Callable{&node, node.name}));
        break;
      case What::kGeneration:
        generation(node);
        break;
      case What::kBreak:
        return Flow::kBreak;
      default:
        return Flow::kContinue;
    }
    return Flow::kOn;
  }

  void write(const Value& value) {
    const std::string text = text_of(value, budget_);
    budget_.spend(text.size());
    append(to_->sources, provenance_of(value, text, budget_), to_->text.size());
    to_->text += text;
  }

  /// What a body writes, as a string.
  Value apart(const Body& body, Scope* outer) {
    const Inner inner(*this, outer);
    Rendering written;
    Rendering* before = std::exchange(to_, &written);
    execute(body);
    to_ = before;
    return Value::text(std::move(written.text)).with(std::move(written.sources));
  }

  Value concatenated(const Node& node) {
    Rendering all;
    for (const auto& part : node.parts) {
      const Value each = value(*part);
      const std::string text = text_of(each, budget_);
      append(all.sources, provenance_of(each, text, budget_), all.text.size());
      all.text += text;
    }
    return Value::text(std::move(all.text)).with(std::move(all.sources));
  }

  Value filtered(const Node& node) {
    const Value given = value(*node.parts[0]);
    Arguments all = arguments(node, "|" + node.name);
    Value result = filter(node.name, given, all);
    const bool joins = node.name == "join" && given.list() != nullptr && all.get(1, "attribute") == nullptr;
    if (!joins) return derived(std::move(result), given, all.values, budget_);
    const Value* between = all.get(0, "d");
    return joined(std::move(result), given, between != nullptr ? *between : Value::text(""), budget_);
  }

  void set(const Node& node) {
    Value given = value(*node.parts[0]);
    if (!node.name.empty()) {
      const Value space = look_up(node.names[0]);
      if (space.as<Space*>() == nullptr)
        budget_.fail(fmt::format("'{}' must be a namespace for .{} to be set", node.names[0], node.name),
                     space.kind(), "make it one by namespace()");
      return put(**space.as<Space*>(), node.name, std::move(given));
    }
    bind(node.names, std::move(given));
  }

  void put(Space& space, const std::string& name, Value given) {
    if (name.starts_with("_"))
      budget_.fail("names of a namespace must not begin with _", name, "use another name");
    space.items.insert_or_assign(name, std::move(given));
  }

  /// One name takes the value; several take its items.
  void bind(const std::vector<std::string>& names, Value given) {
    if (names.size() == 1) {
      scope_->values.insert_or_assign(names[0], std::move(given));
      return;
    }
    const std::vector<Value> items = items_of(given, budget_);
    if (items.size() != names.size())
      budget_.fail(fmt::format("{} names need as many values", names.size()), fmt::format("{}", items.size()),
                   "mend the template or the data");
    for (std::size_t i = 0; i < names.size(); ++i) scope_->values.insert_or_assign(names[i], items[i]);
  }

  Flow branch(const Node& node) {
    for (std::size_t i = 0; i < node.parts.size(); ++i)
      if (value(*node.parts[i]).truth()) return execute(node.bodies[i]);
    return node.bodies.size() > node.parts.size() ? execute(node.bodies.back()) : Flow::kOn;
  }

  /// What gives `loop` those of `items` for which the condition of its node holds.
  std::function<bool()> chooser(const Node& node, Loop& loop, std::vector<Value> items) {
    return [this, &node, &loop, items = std::move(items), outer = scope_, at = std::size_t{0},
            at_work = false]() mutable {
      if (at_work) budget_.fail("a loop's condition must not ask for its items", "it", "mend the template");
      at_work = true;
      bool found = false;
      while (!found && at < items.size()) {
        Value& each = items[at++];
        found = !node.parts[1] || holds(node, each, outer);
        if (found) loop.items.push_back(std::move(each));
      }
      at_work = false;
      return found;
    };
  }

  /// Whether the condition of a loop does.
  bool holds(const Node& loop, const Value& item, Scope* outer) {
    const Inner inner(*this, outer);
    bind(loop.names, item);
    return value(*loop.parts[1]).truth();
  }

  void loop(const Node& node) {
    const Value given = value(*node.parts[0]);
    const auto shared = std::make_shared<Loop>();
    Loop& loop = *shared;
    const List* once = given.list() != nullptr && given.list()->form == Form::kOnce ? given.list() : nullptr;
    const bool has_items = once != nullptr && once->gone(budget_) < once->items.size();
    loop.more = chooser(node, loop, items_of(given, budget_));
    if (has_items) once->taken = List::kBroken;
    bool came_to_end = false;  // of the body once: what Jinja asks for its else
    bool left = false;
    for (; !left && loop.reach(loop.index); ++loop.index) {
      const Inner inner(*this, scope_);
      scope_->values.insert_or_assign("loop", Value(shared));
      bind(node.names, loop.items[loop.index]);
      const Flow flow = iterate(node, message_of(loop.items[loop.index]));
      left = flow == Flow::kBreak;
      came_to_end = came_to_end || flow == Flow::kOn;
    }
    loop.more = nullptr;
    if (once != nullptr && !left) once->taken = once->items.size();
    if (!came_to_end) {
      const Inner inner(*this, scope_);
      execute(node.bodies[1]);
    }
  }

  Flow iterate(const Node& node, std::optional<std::size_t> message) {
    if (to_ != &out_) return execute(node.bodies[0]);
    const std::size_t number = out_.iterations.size(), begin = out_.text.size();
    out_.iterations.push_back({message, {begin, begin}, out_.sources.size(), 0});
    const Flow flow = execute(node.bodies[0]);
    out_.iterations[number].span.end = out_.text.size();
    out_.iterations[number].end_source = out_.sources.size();
    return flow;
  }

  [[nodiscard]] std::optional<std::size_t> message_of(const Value& item) const {
    const auto found = numbers_.find(item.mapping());
    return found != numbers_.end() ? std::optional(found->second) : std::nullopt;
  }

  void generation(const Node& node) {
    if (to_ != &out_)
      budget_.fail("{% generation %} must write to the rendering itself", "it in a macro or {% set %}",
                   "move it out");
    const Inner inner(*this, scope_);
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
    const Deeper deeper(*this);
    budget_.spend(kStep);
    budget_.line = node.line;
    switch (node.what) {
      case What::kConstant:
        return node.constant;
      case What::kName:
        return look_up(node.name);
      case What::kList:
        return Value::list(values(node, 0), budget_, node.flag ? Form::kTuple : Form::kList);
      case What::kMapping:
        return mapping(node);
      case What::kAttribute:
        return attribute(value(*node.parts[0]), node.name, budget_);
      case What::kItem: {
        const Value of = value(*node.parts[0]);
        return item(of, value(*node.parts[1]), budget_);
      }
      case What::kSlice:
        return sliced(node);
      case What::kCall:
        return call(node);
      case What::kFilter:
        return filtered(node);
      default:
        return operation(node);
    }
  }

  Value operation(const Node& node) {
    switch (node.what) {
      case What::kTest: {
        const Value given = value(*node.parts[0]);
        Arguments all = arguments(node, "is " + node.name);
        return {test(node.name, given, all) != node.flag};
      }
      case What::kNot:
        return {!value(*node.parts[0]).truth()};
      case What::kNegative:
      case What::kPositive: {
        const bool negative = node.what == What::kNegative;
        const Value given = value(*node.parts[0]);
        if (const double* number = given.as<double>()) return {negative ? -*number : *number};
        return binary(negative ? "-" : "+", Value::integer(0), given, budget_);
      }
      case What::kAnd:
      case What::kOr: {
        Value left = value(*node.parts[0]);
        return left.truth() == (node.what == What::kOr) ? left : value(*node.parts[1]);
      }
      case What::kChoice:
        if (value(*node.parts[0]).truth()) return value(*node.parts[1]);
        return node.parts[2] ? value(*node.parts[2]) : Value::undefined("the other case of an if");
      case What::kBinary: {
        const Value left = value(*node.parts[0]), right = value(*node.parts[1]);
        return added(binary(node.name, left, right, budget_), left, right, budget_);
      }
      case What::kCompare:
        return compared(node);
      default:
        return concatenated(node);
    }
  }

  Value compared(const Node& node) {
    Value left = value(*node.parts[0]);
    for (std::size_t i = 0; i < node.names.size(); ++i) {
      Value right = value(*node.parts[i + 1]);
      if (!compare(node.names[i], left, right, budget_)) return {false};
      left = std::move(right);
    }
    return {true};
  }

  std::vector<Value> values(const Node& node, std::size_t first) {
    std::vector<Value> all;
    for (std::size_t i = first; i < node.parts.size(); ++i) all.push_back(value(*node.parts[i]));
    budget_.spend(2 * kStep * all.size());
    return all;
  }

  Value mapping(const Node& node) {
    std::vector<std::pair<std::string, Value>> items;
    for (std::size_t i = 0; i < node.parts.size(); i += 2) {
      const Value key = value(*node.parts[i]);
      if (key.text() == nullptr || key.is_safe())
        budget_.fail("keys of a mapping must be strings here", key.kind(), "mend it");
      put_item(items, *key.text(), value(*node.parts[i + 1]));
    }
    return Value::mapping(std::move(items), budget_);
  }

  void put_item(std::vector<std::pair<std::string, Value>>& items, const std::string& key, Value given) {
    budget_.spend(items.size() + 4);
    for (auto& [name, old] : items)
      if (name == key) {
        old = std::move(given);
        return;
      }
    items.emplace_back(key, std::move(given));
  }

  Value sliced(const Node& node) {
    const Value of = value(*node.parts[0]);
    std::optional<Value> bounds[3];
    for (std::size_t i = 0; i < 3; ++i)
      if (node.parts[i + 1]) bounds[i] = value(*node.parts[i + 1]);
    const auto bound = [&](std::size_t i) { return bounds[i] ? &*bounds[i] : nullptr; };
    return derived(slice(of, bound(0), bound(1), bound(2), budget_), of, {}, budget_);
  }

  Arguments arguments(const Node& node, std::string of) {
    Arguments all(budget_, std::move(of));
    all.values = values(node, 1);
    for (const auto& [name, part] : node.named) all.named.emplace_back(name, value(*part));
    budget_.line = node.line;
    return all;
  }

  Value call(const Node& node) {
    const Node& callee = *node.parts[0];
    if (callee.what == What::kAttribute) {
      const Value of = value(*callee.parts[0]);
      const Space* const* space = of.as<Space*>();
      if (of.is_undefined() || space != nullptr || of.as<std::shared_ptr<Loop>>() != nullptr)
        return call_held(of, node);
      Arguments all = arguments(node, "." + callee.name + "()");
      Value result = method(callee.name, of, all);
      all.finish();
      const bool joins = callee.name == "join" && of.text() != nullptr && all.values[0].list() != nullptr;
      return joins ? joined(std::move(result), all.values[0], of, budget_)
                   : derived(std::move(result), of, all.values, budget_);
    }
    const Value function = value(callee);
    return call_value(function, node);
  }

  /// A macro in a namespace, or loop.cycle.
  Value call_held(const Value& of, const Node& node) {
    const std::string& name = node.parts[0]->name;
    const auto* loop = of.as<std::shared_ptr<Loop>>();
    if (loop == nullptr || name != "cycle") return call_value(attribute(of, name, budget_), node);
    Arguments all = arguments(node, "loop.cycle()");
    if (all.values.empty()) budget_.fail("loop.cycle needs values", "none", "give them");
    return all.values[(*loop)->index % all.values.size()];
  }

  Value call_value(const Value& callee, const Node& node) {
    const Callable* function = callee.as<Callable>();
    if (function == nullptr) {
      const bool clock = node.parts[0]->what == What::kName && node.parts[0]->name == "strftime_now";
      budget_.fail("what is called must be a function that is understood here", callee.kind(),
                   clock ? "write a date: what a run reads must not depend on the day" : "mend the template");
    }
    Arguments all = arguments(node, function->name + "()");
    if (function->macro != nullptr) return call_macro(*function->macro, all);
    if (function->name == "raise_exception")
      budget_.fail("the template refuses the conversation",
                   fmt::format("'{}'", text_of(all.need(0, "message"), budget_)), "mend the conversation");
    if (function->name == "namespace") return make_space(all);
    if (function->name == "range") return range(all);
    std::vector<std::pair<std::string, Value>> items = given_mapping(all);
    for (const auto& [key, each] : all.named) put_item(items, key, each);
    return Value::mapping(std::move(items), budget_);
  }

  /// The mapping that namespace() and dict() may begin from.
  std::vector<std::pair<std::string, Value>> given_mapping(Arguments& all) {
    if (all.values.empty()) return {};
    if (all.values.size() > 1 || all.values[0].mapping() == nullptr)
      all.fail("it takes names and one mapping here", all.values[0]);
    budget_.spend(4 * all.values[0].mapping()->items.size());
    return all.values[0].mapping()->items;
  }

  Value make_space(Arguments& all) {
    budget_.spend(64);
    Space& space = spaces_.emplace_back();
    for (auto& [key, each] : given_mapping(all)) put(space, key, each);
    for (auto& [key, each] : all.named) put(space, key, each);
    return {&space};
  }

  Value call_macro(const Node& macro, Arguments& all) {
    const Inner inner(*this, &top_);
    for (std::size_t i = 0; i < macro.names.size(); ++i) {
      const Value* given = all.get(i, macro.names[i]);
      scope_->values.insert_or_assign(macro.names[i], given != nullptr ? *given
                                                      : macro.parts[i] ? value(*macro.parts[i])
                                                                       : Value::undefined(macro.names[i]));
    }
    all.finish();
    return apart(macro.bodies[0], scope_);
  }

  Budget& budget_;
  Scope top_{nullptr};
  Scope* scope_ = &top_;
  std::deque<Space> spaces_;
  Value messages_;
  std::unordered_map<const Mapping*, std::size_t> numbers_;  // of the messages
  Rendering out_;
  Rendering* to_ = &out_;  // or where a macro or {% set %} writes
  int depth_ = 0;
};

}  // namespace

Rendering render(const Body& body, Variables variables, Budget& budget) {
  return Renderer(std::move(variables), budget).run(body);
}

}  // namespace colonnade::chat_template
