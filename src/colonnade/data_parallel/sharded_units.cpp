// Fully sharded data parallelism: what happens at the borders of blocks. See grad_buffers.h.
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "colonnade/data_parallel/grad_buffers.h"
#include "colonnade/data_parallel/partial_sums.h"

namespace colonnade::data_parallel {
namespace {

/// Of stretches of `length` one after the other: neighbours first, then neighbouring sums. `stretches` is
/// used up; the result lies in memory of its own.
at::Tensor sum_in_a_tree(const at::Tensor& stretches, std::int64_t length) {
  const std::int64_t count = length > 0 ? stretches.numel() / length : 1;
  const auto at = [&](std::int64_t i) { return stretches.narrow(0, i * length, length); };
  for (std::int64_t apart = 1; apart < count; apart *= 2)
    for (std::int64_t i = 0; i + apart < count; i += 2 * apart) at(i).add_(at(i + apart));
  return count == 1 ? stretches : at(0).clone();
}

/// One more micro-batch, as a binary number grows by one.
void carry(std::vector<at::Tensor>& sums, at::Tensor sum) {
  std::size_t i = 0;
  for (; i < sums.size() && sums[i].defined(); ++i) {
    sum.add_(sums[i]);
    sums[i].reset();
  }
  if (i == sums.size()) sums.emplace_back();
  sums[i] = std::move(sum);
}

}  // namespace

Units units_of(const std::vector<tensor::Stage*>& stages) {
  Units units;
  int unit = 0;
  for (const tensor::Stage* stage : stages)
    for (const auto& block : stage->blocks) {
      const auto own = block->parameters(), others = block->reads();
      for (const tensor::Parameter* parameter : own) units.readers[parameter] = {unit};
      for (const tensor::Parameter* parameter : others)
        if (auto& readers = units.readers.at(parameter); readers.back() != unit) readers.push_back(unit);
      if (!own.empty() || !others.empty()) units.blocks[block.get()] = unit;
      ++unit;
    }
  return units;
}

void GradBuffers::attach(tensor::Stage& stage) {
  if (options_.sharding < layout::Sharding::kGradients) {
    if (options_.overlap_param_gather)
      stage.before_forward = [this](tensor::Block& block) { wait_for(block.parameters()); };
    return;
  }
  int first = -1, last = -1;
  for (const auto& block : stage.blocks) {
    const int unit = unit_of(*block);
    if (first < 0) first = unit;
    last = std::max(last, unit);
  }
  stage.before_forward = [this, last](tensor::Block& block) {
    const int unit = unit_of(block);
    leave_backward();
    land();  // of the pass before: one bucket beside two units is all that the plan allows for
    use(unit);
    if (options_.overlap_param_gather && unit >= 0 && unit < last) start_gather(unit + 1);
  };
  stage.after_forward = [this, first, last](tensor::Block& block, const at::Tensor&, const at::Tensor& y) {
    const int unit = unit_of(block);
    const bool comes_back = unit >= 0 && at::GradMode::is_enabled() && y.requires_grad();
    if (!comes_back || options_.reshard_after_forward) let_go(unit);
    if (!comes_back) return;
    y.register_hook([this, unit, first, last](const at::Tensor&) {
      leave_backward();
      if (unit == last) land();
      enter_backward(unit);
      if (options_.overlap_param_gather && unit > first) start_gather(unit - 1);
    });
  };
}

int GradBuffers::unit_of(const tensor::Block& block) const {
  const auto found = options_.units.blocks.find(&block);
  return found == options_.units.blocks.end() ? -1 : found->second;
}

void GradBuffers::start_gather(int unit) {
  for (const std::size_t index : buckets_of_unit_[static_cast<std::size_t>(unit)]) {
    Bucket& bucket = buckets_[index];
    if (!bucket.cuts_params || bucket.params.here() || bucket.arriving.defined()) continue;
    bucket.gathered.wait();  // its part
    bucket.arriving = bucket.params.empty();
    bucket.gathered =
        groups_.replicas(bucket.place.family)
            .inner.all_gather(bucket.arriving, bucket.part.params, bucket.name + " / parameters");
  }
}

void GradBuffers::use(int unit) {
  if (unit < 0) return;
  start_gather(unit);
  for (const std::size_t index : buckets_of_unit_[static_cast<std::size_t>(unit)]) {
    Bucket& bucket = buckets_[index];
    bucket.gathered.wait();
    if (!bucket.arriving.defined()) continue;
    bucket.params.give(bucket.arriving);
    bucket.arriving.reset();
  }
}

void GradBuffers::let_go(int unit) {
  if (unit < 0) return;
  for (const std::size_t index : buckets_of_unit_[static_cast<std::size_t>(unit)])
    buckets_[index].params.let_go();
}

void GradBuffers::enter_backward(int unit) {
  use(unit);
  for (const std::size_t index : buckets_of_unit_[static_cast<std::size_t>(unit)])
    give_gradients(index, unit);
}

void GradBuffers::enter_weights() {
  leave_backward();
  land();
}

void GradBuffers::enter_product(const tensor::Parameter& parameter) {
  const std::size_t index = bucket_of_.at(&parameter);
  const int unit = buckets_[index].units.back();  // of a table's readers the last one multiplies with it
  if (unit != backward_) leave_backward();
  give_gradients(index, unit);
}

/// Memory for what comes from this unit's pass.
void GradBuffers::give_gradients(std::size_t index, int unit) {
  Bucket& bucket = buckets_[index];
  if (!bucket.cuts_grads) return;
  backward_ = unit;
  if (flight_ && flight_->bucket == index) land();  // of what was before
  if (bucket.grads.here()) return;
  bucket.grads.give(bucket.grads.empty());
  bucket.missing = static_cast<int>(bucket.parameters.size());
  bucket.reader = static_cast<std::size_t>(std::ranges::find(bucket.units, unit) - bucket.units.begin());
}

/// Of what did not end by itself: a table with another reader, parameters that were not used or left their
/// gradients for later.
void GradBuffers::leave_backward() {
  if (backward_ < 0) return;
  for (const std::size_t index : buckets_of_unit_[static_cast<std::size_t>(std::exchange(backward_, -1))]) {
    Bucket& bucket = buckets_[index];
    if (bucket.cuts_grads && std::ranges::any_of(bucket.parameters, &tensor::Parameter::has_grad))
      scatter(index);
    else if (!flight_ || flight_->bucket != index)
      bucket.grads.let_go();
    bucket.params.let_go();
  }
}

/// The unit's last use of these parameters is over.
void GradBuffers::scatter(std::size_t index) {
  Bucket& bucket = buckets_[index];
  for (tensor::Parameter* parameter : bucket.parameters)
    if (!parameter->has_grad()) parameter->grad_to_add_to();  // not used: its gradient is zero
  if (bucket.place.further == layout::FurtherSum::kSharedRows)
    sum_shared_rows(bucket.parameters, groups_.tensor, bucket.name + " / partial");
  for (tensor::Parameter* parameter : bucket.parameters) parameter->zero_grad();
  bucket.missing = static_cast<int>(bucket.parameters.size());
  bucket.params.let_go();
  land();
  const comm::Group& replicas = groups_.replicas(bucket.place.family).inner;
  if (options_.deterministic) {
    flight_.emplace(Flight{index, bucket.reader, at::empty_like(bucket.grads.tensor()), {}});
    flight_->work = replicas.all_to_all(flight_->part, bucket.grads.tensor(), bucket.name);
  } else {
    at::Tensor all = bucket.grads.tensor();
    if (options_.travel.in) {
      all = all.to(*options_.travel.in);
      bucket.grads.let_go();
    }
    flight_.emplace(Flight{index, bucket.reader, at::empty_like(bucket.part.grads), {}});
    flight_->work = sum_over(replicas, all, flight_->part, options_.travel, bucket.name);
  }
  if (!options_.overlap_grad_reduce) land();
}

void GradBuffers::land() {
  if (!flight_) return;
  flight_->work.wait();
  Bucket& bucket = buckets_[flight_->bucket];
  const at::Tensor& own = bucket.part.grads;
  const at::NoGradGuard no_grad;
  if (options_.deterministic)
    carry(bucket.sums[flight_->reader], sum_in_a_tree(flight_->part, own.numel()));
  else if (bucket.summed)
    own.add_(flight_->part);
  else
    own.copy_(flight_->part);
  bucket.summed = true;
  bucket.grads.let_go();
  flight_.reset();
}

void GradBuffers::add_up(std::size_t index) {
  const at::NoGradGuard no_grad;
  const auto add = [](at::Tensor& all, at::Tensor sum) {
    if (sum.defined()) all = all.defined() ? all.add_(sum) : std::move(sum);
  };
  at::Tensor all;
  for (std::vector<at::Tensor>& waiting : buckets_[index].sums) {
    at::Tensor of_reader;
    for (at::Tensor& sum : waiting) add(of_reader, std::exchange(sum, {}));
    add(all, std::move(of_reader));
  }
  if (all.defined()) buckets_[index].part.grads.copy_(all);
}

Here GradBuffers::here(const tensor::Parameter& parameter) {
  const auto found = bucket_of_.find(&parameter);
  const std::int64_t numel = parameter.value.numel();
  const Levels& replicas = groups_.replicas(parameter.spec.family);
  wait_for(parameter);
  if (found == bucket_of_.end() || !buckets_[found->second].cuts_params)
    return {0, parameter.value.detach().view(-1), replicas.first()};
  const Owned& part = buckets_[found->second].part;
  const bool saves = replicas.outer.rank() == 0;
  const std::int64_t begin = std::ranges::find(entries_, &parameter, &Entry::parameter)->begin;
  const std::int64_t from = std::max(part.begin, begin), to = std::min(part.end, begin + numel);
  if (from >= to) return {0, part.params.narrow(0, 0, 0), saves};
  return {from - begin, part.params.narrow(0, from - part.begin, to - from), saves};
}

}  // namespace colonnade::data_parallel
