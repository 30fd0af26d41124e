// See executor.h. While something is computed, the messages that the next computation needs may arrive: their
// receives are opened before. A pass keeps, per (chunk, micro-batch), the input and the autograd edge of the
// output; the output itself is dropped as soon as it is sent. Between the gradient of an input and those of
// the weights it keeps the products that the layers left.
#include "colonnade/pipeline/executor.h"

#include <optional>
#include <set>
#include <tuple>

#include "colonnade/base/error.h"
#include "colonnade/base/progress.h"
#include "colonnade/schedule/releases.h"
#include "colonnade/tensor/backward.h"
#include "colonnade/tensor/deferred.h"

namespace colonnade::pipeline {
namespace {

using schedule::Action;
using schedule::Do;
using schedule::is_forward_part;
using schedule::is_transfer;

struct Key {
  int chunk;
  int microbatch;
  friend auto operator<=>(const Key&, const Key&) = default;
};

/// Tags of messages. One number for all micro-batches and chunks: what travels between two ranks in one
/// direction arrives in the order of sending, which schedule::check proves to be the order of receiving.
constexpr int kActivations = 0;
constexpr int kGradients = 1;

/// One direction of one kind of messages.
struct Lane {
  int from, to, tag;
  friend auto operator<=>(const Lane&, const Lane&) = default;
};

/// All that the placement needs, by pairs of ranks: a network of pairs in which every rank follows one order
/// never waits in a circle, and pairs of disjoint ranks open theirs at the same time.
std::vector<Lane> lanes_of(const schedule::Placement& placement) {
  std::set<std::tuple<bool, int, int, Lane>> ordered;
  for (int stage = 0; stage < placement.stages(); ++stage) {
    if (!placement.crosses(stage)) continue;
    const int here = placement.place(stage).rank, there = placement.place(stage + 1).rank;
    const auto [low, high] = std::minmax(here, there);
    ordered.emplace(low % 2 != 0, low, high, Lane{here, there, kActivations});
    ordered.emplace(low % 2 != 0, low, high, Lane{there, here, kGradients});
  }
  std::vector<Lane> lanes;
  for (const auto& one : ordered) lanes.push_back(std::get<Lane>(one));
  return lanes;
}

/// What is kept of a micro-batch between its forward and its backward pass.
struct Live {
  at::Tensor input;                 ///< leaf; undefined on the first stage
  torch::autograd::Edge output;     ///< where the gradient of the output enters
  at::Tensor seed;                  ///< gradient to start from, on the last stage
  std::vector<std::int64_t> shape;  ///< of the output, on the others
};

/// One pass over the program of this rank.
class Run {
 public:
  Run(const schedule::Schedule& schedule, const std::vector<tensor::Stage*>& stages, const comm::Group& pp,
      const Activation& activation, const at::TensorOptions& options, const Steps& steps,
      const std::vector<tensor::Parameter*>& parameters,
      const std::vector<std::vector<std::size_t>>& releases)
      : schedule_(schedule),
        stages_(stages),
        pp_(pp),
        activation_(activation),
        options_(options),
        steps_(steps),
        parameters_(parameters),
        releases_(releases) {}

  void forward(const Action& a, tensor::Output output,
               const std::function<void(int, const at::Tensor&)>& sink);
  /// The whole backward pass, or with Do::kBackwardInput what leaves products of weights.
  void backward(const Action& a);
  /// The products that were left. `last`: of this chunk in this pass.
  void weights(const Action& a, bool last, const GradientEvents& events);
  /// `index` is the place of `a` in the program.
  void transfer(const Action& a, std::size_t index);
  /// Opens the receive at a place in the program, so that its message may arrive beside what is computed
  /// until then.
  void open_receive(const Action& a, std::size_t index);
  void finish();

  bool training = false;
  double grad_scale = 1;
  double block_weight = 1;
  std::size_t most_sent = 0;  ///< messages on their way; 0: as many as come
  Result result;

 private:
  [[nodiscard]] int stage_number(int chunk) const { return schedule_.placement.stage(pp_.rank(), chunk); }
  [[nodiscard]] int rank_of(int stage) const { return schedule_.placement.place(stage).rank; }
  [[nodiscard]] int chunk_of(int stage) const { return schedule_.placement.place(stage).chunk; }
  at::Tensor take(std::map<Key, at::Tensor>& from, const Key& key, const char* what);
  void hand_over(const Key& key, const at::Tensor& output);
  /// What has arrived; blocks until it has.
  at::Tensor received(const Action& a, std::size_t index);
  [[nodiscard]] std::string name_of(const Action& a, const char* kind) const {
    return fmt::format("pipeline / {} / stage {} micro-batch {}", kind, stage_number(a.chunk), a.microbatch);
  }
  /// Of a micro-batch that is between its forward and its backward pass.
  const Live& live(const Key& key);
  const tensor::Batch& batch(int microbatch);
  /// After the last chunk of this rank: what backward needs of the batch, the graph keeps.
  void forget_batch(const Key& key);

  const schedule::Schedule& schedule_;
  const std::vector<tensor::Stage*>& stages_;
  const comm::Group& pp_;
  const Activation& activation_;
  const at::TensorOptions& options_;
  const Steps& steps_;
  const std::vector<tensor::Parameter*>& parameters_;
  const std::vector<std::vector<std::size_t>>& releases_;

  std::map<int, tensor::Batch> batches_;
  std::map<Key, at::Tensor> inputs_, outputs_, output_grads_, input_grads_;
  std::map<Key, Live> live_;
  std::map<Key, tensor::DeferredProducts> left_;
  struct Arriving {
    at::Tensor tensor;
    comm::Work work;
  };
  std::map<std::size_t, Arriving> arriving_;  ///< by place in the program
  std::map<std::size_t, comm::Work> sent_;    ///< the same
};

const tensor::Batch& Run::batch(int microbatch) {
  const auto found = batches_.find(microbatch);
  if (found != batches_.end()) return found->second;
  return batches_.emplace(microbatch, steps_.batch(microbatch).to(options_.device())).first->second;
}

void Run::forget_batch(const Key& key) {
  if (key.chunk + 1 == schedule_.chunks) batches_.erase(key.microbatch);
}

at::Tensor Run::take(std::map<Key, at::Tensor>& from, const Key& key, const char* what) {
  const auto found = from.find(key);
  COL_CHECK(
      found != from.end(),
      "pipeline: {} of chunk {}, micro-batch {} must come before its use; got none; the schedule is unsound",
      what, key.chunk, key.microbatch);
  at::Tensor tensor = std::move(found->second);
  from.erase(found);
  return tensor;
}

/// Where the next virtual stage is on this rank too no transfer is in the program.
void Run::hand_over(const Key& key, const at::Tensor& output) {
  const int stage = stage_number(key.chunk);
  if (!schedule_.placement.crosses(stage))
    inputs_[{chunk_of(stage + 1), key.microbatch}] = output.detach();
  else
    outputs_[key] = output;
}

void Run::forward(const Action& a, tensor::Output output,
                  const std::function<void(int, const at::Tensor&)>& sink) {
  tensor::Stage& stage = *stages_[static_cast<std::size_t>(a.chunk)];
  const Key key{a.chunk, a.microbatch};
  at::Tensor x;
  if (!stage.first) {
    x = take(inputs_, key, "the input");
    if (training) x.requires_grad_();
  }
  const tensor::Pass pass{.batch = batch(a.microbatch),
                          .training = training,
                          .output = output,
                          .grad_scale = training ? grad_scale * block_weight : 0,
                          .report = &result.report};
  const at::Tensor y = steps_.forward ? steps_.forward(stage, x, pass) : stage.forward(x, pass);
  if (!stage.last) {
    hand_over(key, y.detach().contiguous());
    if (training) live_[key] = {x, torch::autograd::impl::gradient_edge(y), {}, y.sizes().vec()};
    return forget_batch(key);
  }
  if (sink) {
    forget_batch(key);
    return sink(a.microbatch, y);
  }
  const Loss loss = steps_.loss(y, pass.batch);
  for (const auto& [name, one] : loss.report) tensor::add(result.report.tallies, name, one);
  if (training)
    live_[key] = {x,
                  torch::autograd::impl::gradient_edge(loss.value),
                  at::full_like(loss.value.detach(), grad_scale),
                  {}};
  forget_batch(key);
}

const Live& Run::live(const Key& key) {
  const auto found = live_.find(key);
  COL_CHECK(
      found != live_.end(),
      "pipeline: backward of chunk {}, micro-batch {} must follow its forward; got none; the schedule is "
      "unsound",
      key.chunk, key.microbatch);
  return found->second;
}

void Run::backward(const Action& a) {
  const Key key{a.chunk, a.microbatch};
  Live live = this->live(key);
  live_.erase(key);
  const bool last = stages_[static_cast<std::size_t>(a.chunk)]->last;
  at::Tensor grad = last ? std::move(live.seed) : take(output_grads_, key, "the gradient of the output");
  {
    std::optional<tensor::DeferScope> scope;
    if (a.act == Do::kBackwardInput) scope.emplace(parameters_, left_[key]);
    tensor::backward(live.output, std::move(grad));
  }
  if (!live.input.defined()) return;
  at::Tensor grad_input = tensor::take_grad(live.input);
  COL_CHECK(
      grad_input.defined(),
      "pipeline: the output of chunk {} must depend on its input; got no gradient of it; use the input in a "
      "block",
      a.chunk);
  const int before = stage_number(a.chunk) - 1;
  if (!schedule_.placement.crosses(before))
    output_grads_[{chunk_of(before), a.microbatch}] = std::move(grad_input);
  else
    input_grads_[key] = grad_input.contiguous();
}

void Run::weights(const Action& a, bool last, const GradientEvents& events) {
  const auto found = left_.find({a.chunk, a.microbatch});
  COL_CHECK(found != left_.end(),
            "pipeline: weight gradients of chunk {}, micro-batch {} must follow the input's; got none; the "
            "schedule is unsound",
            a.chunk, a.microbatch);
  if (events.before_weights) events.before_weights();
  found->second.run(last, events.before_product);
  left_.erase(found);
}

void Run::open_receive(const Action& a, std::size_t index) {
  if (arriving_.contains(index)) return;
  const int stage = stage_number(a.chunk);
  Arriving arriving;
  if (a.act == Do::kRecvActivation) {
    arriving.tensor = at::empty(activation_(batch(a.microbatch), a.chunk, training), options_);
    arriving.work =
        pp_.recv(arriving.tensor, rank_of(stage - 1), kActivations, name_of(a, "receive activation"));
  } else {
    arriving.tensor = at::empty(live({a.chunk, a.microbatch}).shape, options_);
    arriving.work = pp_.recv(arriving.tensor, rank_of(stage + 1), kGradients, name_of(a, "receive gradient"));
  }
  arriving_.emplace(index, std::move(arriving));
}

at::Tensor Run::received(const Action& a, std::size_t index) {
  open_receive(a, index);
  Arriving arriving = std::move(arriving_.at(index));
  arriving_.erase(index);
  arriving.work.wait();
  return std::move(arriving.tensor);
}

void Run::transfer(const Action& a, std::size_t index) {
  const Key key{a.chunk, a.microbatch};
  const int stage = stage_number(a.chunk);
  switch (a.act) {
    case Do::kSendActivation:
      for (; most_sent > 0 && sent_.size() >= most_sent; sent_.erase(sent_.begin()))
        sent_.begin()->second.wait();
      sent_[index] = pp_.send(take(outputs_, key, "the output"), rank_of(stage + 1), kActivations,
                              name_of(a, "send activation"));
      break;
    case Do::kRecvActivation:
      inputs_[key] = received(a, index);
      break;
    case Do::kSendGradient:
      sent_[index] = pp_.send(take(input_grads_, key, "the gradient"), rank_of(stage - 1), kGradients,
                              name_of(a, "send gradient"));
      break;
    case Do::kRecvGradient:
      output_grads_[key] = received(a, index);
      break;
    default:
      break;
  }
  for (const std::size_t arrived : releases_[index]) sent_.erase(arrived);
}

void Run::finish() {
  for (auto& [index, work] : sent_) work.wait();
}

}  // namespace

Executor::Executor(schedule::Schedule schedule, std::vector<tensor::Stage*> stages, comm::Group pp,
                   Activation activation, at::TensorOptions options)
    : stages_(std::move(stages)), pp_(std::move(pp)), activation_(std::move(activation)), options_(options) {
  for (const tensor::Stage* stage : stages_) {
    const auto own = stage->parameters();
    parameters_.insert(parameters_.end(), own.begin(), own.end());
  }
  own_ = order(std::make_shared<const schedule::Schedule>(std::move(schedule)));
}

std::shared_ptr<const Executor::Order> Executor::order(
    std::shared_ptr<const schedule::Schedule> schedule) const {
  COL_CHECK(schedule->ranks == pp_.size(), "pipeline: the schedule is for {} ranks; got a group of {}",
            schedule->ranks, pp_.size());
  COL_CHECK(static_cast<int>(stages_.size()) == schedule->chunks,
            "pipeline: the schedule has {} chunks per rank; got {} stages", schedule->chunks, stages_.size());
  const schedule::Program& program = schedule->programs[static_cast<std::size_t>(pp_.rank())];
  Order order{.schedule = {},
              .releases = schedule::releases(*schedule, pp_.rank()),
              .beside = schedule::receives_beside(program),
              .beside_forward = schedule::receives_beside(program, /*forward_only=*/true)};
  order.schedule = std::move(schedule);
  return std::make_shared<const Order>(std::move(order));
}

std::size_t Executor::messages_of_evaluations(const Order& now) {
  if (&now != own_.get()) return schedule::messages_of_evaluations(*now.schedule);
  if (!own_evaluation_messages_) own_evaluation_messages_ = schedule::messages_of_evaluations(*now.schedule);
  return *own_evaluation_messages_;
}

void Executor::open_lanes() const {
  for (const auto& [from, to, tag] : lanes_of(schedule().placement)) {
    if (pp_.rank() != from && pp_.rank() != to) continue;
    at::Tensor token = at::zeros({1}, options_);
    if (pp_.rank() == from)
      pp_.send(token, to, tag, "pipeline / open a lane").wait();
    else
      pp_.recv(token, from, tag, "pipeline / open a lane").wait();
  }
}

Result Executor::train(const Steps& steps, double grad_scale, const GradientEvents& events,
                       double block_weight) {
  const auto now = order_of(steps);
  const schedule::Schedule& schedule = *now->schedule;
  Run run(schedule, stages_, pp_, activation_, options_, steps, parameters_, now->releases);
  run.training = true;
  run.grad_scale = grad_scale;
  run.block_weight = block_weight;
  std::vector<int> passes_left(stages_.size(), schedule.microbatches), weights_left = passes_left;
  const schedule::Program& program = schedule.programs[static_cast<std::size_t>(pp_.rank())];
  for (std::size_t i = 0; i < program.size(); ++i) {
    progress().alive();
    const Action& a = program[i];
    const auto chunk = static_cast<std::size_t>(a.chunk);
    if (is_transfer(a.act)) {
      run.transfer(a, i);
      continue;
    }
    for (const std::size_t receive : now->beside[i]) run.open_receive(program[receive], receive);
    if (gives_input_gradient(a.act) && --passes_left[chunk] == 0 && events.before_last_backward)
      events.before_last_backward(a.chunk);
    if (ends_backward(a.act)) --weights_left[chunk];
    if (a.act == Do::kForward)
      run.forward(a, tensor::Output::kLoss, {});
    else if (a.act == Do::kBackwardWeight)
      run.weights(a, /*last=*/weights_left[chunk] == 0, events);
    else
      run.backward(a);
  }
  run.finish();
  return std::move(run.result);
}

Result Executor::evaluate(const Steps& steps, tensor::Output output,
                          const std::function<void(int microbatch, const at::Tensor& output)>& sink) {
  const at::NoGradGuard no_grad;
  const auto now = order_of(steps);
  const schedule::Schedule& schedule = *now->schedule;
  Run run(schedule, stages_, pp_, activation_, options_, steps, parameters_, now->releases);
  run.most_sent = messages_of_evaluations(*now);
  const schedule::Program& program = schedule.programs[static_cast<std::size_t>(pp_.rank())];
  for (std::size_t i = 0; i < program.size(); ++i) {
    progress().alive();
    const Action& a = program[i];
    if (!is_forward_part(a.act)) continue;
    if (is_transfer(a.act)) {
      run.transfer(a, i);
      continue;
    }
    for (const std::size_t receive : now->beside_forward[i]) run.open_receive(program[receive], receive);
    run.forward(a, output, sink);
  }
  run.finish();
  return std::move(run.result);
}

}  // namespace colonnade::pipeline
