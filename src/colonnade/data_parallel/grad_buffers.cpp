// See grad_buffers.h.
#include "colonnade/data_parallel/grad_buffers.h"

#include "colonnade/base/error.h"
#include "colonnade/data_parallel/partial_sums.h"

namespace colonnade::data_parallel {
namespace {

using layout::FurtherSum;

layout::FlatLayout lay_out(const std::vector<std::vector<tensor::Parameter*>>& chunks, const Groups& groups,
                           const Options& options) {
  std::vector<std::vector<layout::FlatParam>> flat(chunks.size());
  const bool by_unit = options.sharding >= layout::Sharding::kGradients;
  for (std::size_t c = 0; c < chunks.size(); ++c)
    for (const tensor::Parameter* p : chunks[c])
      flat[c].push_back({p->value.numel(), layout::further_sum(p->spec, p->shard, groups.tensor.size()),
                         p->spec.family, by_unit ? options.units.readers.at(p).front() : 0,
                         by_unit && options.splits_backward && layout::may_wait(p->spec), p->spec.held_by});
  const auto parts = [&](const Levels& replicas) {
    return replicas.inner.size() * (options.cut_outer ? replicas.outer.size() : 1);
  };
  return layout::lay_out(flat, options.bucket_elements, {parts(groups.data), parts(groups.expert_data)},
                         options.bucket_alignment);
}

/// The equal part of a stretch that falls to this member.
Owned share_of(const Owned& all, const comm::Group& group) {
  const std::int64_t length = (all.end - all.begin) / group.size(), first = length * group.rank();
  return {all.begin + first, all.begin + first + length, all.params.narrow(0, first, length),
          all.grads.narrow(0, first, length)};
}

}  // namespace

GradBuffers::GradBuffers(const std::vector<std::vector<tensor::Parameter*>>& chunks, Groups groups,
                         Options options)
    : groups_(std::move(groups)), options_(std::move(options)), armed_(chunks.size(), false) {
  adopt(lay_out(chunks, groups_, options_), chunks);
  move_into_buffers();
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (tensor::Parameter* parameter : buckets_[b].parameters) {
      bucket_of_[parameter] = b;
      parameter->on_grad_ready = [this, b] { on_ready(b); };
    }
  start_step();
}

void GradBuffers::adopt(const layout::FlatLayout& layout,
                        const std::vector<std::vector<tensor::Parameter*>>& chunks) {
  for (const layout::FlatEntry& e : layout.entries) entries_.push_back({chunks[e.chunk][e.index], e.begin});
  for (const layout::FlatBucket& place : layout.buckets) {
    Bucket& bucket = buckets_.emplace_back();
    bucket.place = place;
    for (std::size_t i = place.first; i < place.last; ++i) bucket.parameters.push_back(entries_[i].parameter);
    bucket.name = fmt::format("gradient bucket {} ({} ... {})", buckets_.size() - 1,
                              bucket.parameters.front()->spec.name, bucket.parameters.back()->spec.name);
    bucket.cuts_grads = (distributed(place.family) || options_.deterministic) &&
                        options_.sharding >= layout::Sharding::kGradients;
    bucket.cuts_params = distributed(place.family) && options_.sharding >= layout::Sharding::kParameters;
    const bool by_unit = options_.sharding >= layout::Sharding::kGradients;
    bucket.units = by_unit ? options_.units.readers.at(bucket.parameters.front()) : std::vector<int>{0};
    bucket.sums.resize(bucket.units.size());
    for (const int reader : bucket.units) {
      const auto unit = static_cast<std::size_t>(reader);
      if (buckets_of_unit_.size() <= unit) buckets_of_unit_.resize(unit + 1);
      buckets_of_unit_[unit].push_back(buckets_.size() - 1);
    }
  }
}

std::int64_t GradBuffers::held(const Bucket& bucket, bool cut) const {
  return length(bucket) / (cut ? groups_.replicas(bucket.place.family).inner.size() : 1);
}

/// Flat memory for what lies between steps; values and gradients of parameters become views of it, or of
/// memory that comes and goes.
void GradBuffers::move_into_buffers() {
  std::int64_t params = 0, grads = 0;
  for (const Bucket& bucket : buckets_) {
    params += held(bucket, bucket.cuts_params);
    grads += held(bucket, bucket.cuts_grads);
  }
  params_ =
      at::zeros({params}, entries_.empty() ? options_.empty : entries_.front().parameter->value.options());
  const auto type = params_.scalar_type();
  grads_ = at::zeros({grads}, params_.options().dtype(type == at::kDouble ? at::kDouble : at::kFloat));
  params = grads = 0;
  for (Bucket& bucket : buckets_) {
    const comm::Group& inner = groups_.replicas(bucket.place.family).inner;
    const bool shared = distributed(bucket.place.family);
    const std::int64_t part = length(bucket) / (shared ? inner.size() : 1);
    const std::int64_t first = shared ? part * inner.rank() : 0;
    bucket.held_params = params_.narrow(0, params, held(bucket, bucket.cuts_params));
    bucket.held_grads = grads_.narrow(0, grads, held(bucket, bucket.cuts_grads));
    bucket.part = {bucket.place.begin + first, bucket.place.begin + first + part,
                   bucket.held_params.narrow(0, bucket.cuts_params ? 0 : first, part),
                   bucket.held_grads.narrow(0, bucket.cuts_grads ? 0 : first, part)};
    owned_.push_back(share_of(bucket.part, sharers(bucket.place.family)));
    if (bucket.cuts_params) bucket.params = Whole(length(bucket), params_.options());
    if (bucket.cuts_grads) bucket.grads = Whole(length(bucket), grads_.options());
    move_parameters(bucket, bucket.cuts_params ? bucket.params.tensor() : bucket.held_params,
                    bucket.cuts_grads ? bucket.grads.tensor() : bucket.held_grads);
    if (bucket.cuts_params) {
      bucket.part.params.copy_(bucket.params.tensor().narrow(0, first, part));
      bucket.params.let_go();
    }
    bucket.grads.let_go();
    params += bucket.held_params.numel();
    grads += bucket.held_grads.numel();
  }
}

void GradBuffers::move_parameters(const Bucket& bucket, const at::Tensor& params, const at::Tensor& grads) {
  for (std::size_t i = bucket.place.first; i < bucket.place.last; ++i) {
    tensor::Parameter& p = *entries_[i].parameter;
    COL_CHECK(p.value.scalar_type() == params.scalar_type(),
              "parameter {}: all parameters of a rank share one dtype; got {} and {}", p.spec.name,
              c10::toString(p.value.scalar_type()), c10::toString(params.scalar_type()));
    const std::int64_t begin = entries_[i].begin - bucket.place.begin, n = p.value.numel();
    p.move_value_to(params.narrow(0, begin, n));
    p.move_grad_to(grads.narrow(0, begin, n));
  }
}

void GradBuffers::start_step() {
  for (const Entry& e : entries_) e.parameter->zero_grad();
  for (Bucket& bucket : buckets_) {
    bucket.missing = static_cast<int>(bucket.parameters.size());
    bucket.launched = bucket.summed = false;
  }
  armed_.assign(armed_.size(), false);
}

void GradBuffers::arm(int chunk) { armed_[static_cast<std::size_t>(chunk)] = true; }

void GradBuffers::on_ready(std::size_t index) {
  Bucket& bucket = buckets_[index];
  if (bucket.cuts_grads) {
    if (--bucket.missing == 0) scatter(index);
    return;
  }
  if (!options_.overlap_grad_reduce || !armed_[static_cast<std::size_t>(bucket.place.chunk)]) return;
  // Layers that are made again end a backward pass each: what many of them read is complete behind the last.
  if (bucket.place.held_by == layout::HeldBy::kEncoder || bucket.place.held_by == layout::HeldBy::kDecoder)
    return;
  if (--bucket.missing == 0) launch(index);
}

/// Sums that travel as copies travel one by one: where these end is bounded, and so is their memory.
void GradBuffers::make_way(std::size_t index) {
  if (!options_.travel.in) return;
  if (travelling_) buckets_[*travelling_].reduced.wait();
  travelling_ = index;
}

void GradBuffers::launch(std::size_t index) {
  Bucket& bucket = buckets_[index];
  for (tensor::Parameter* parameter : bucket.parameters)
    if (!parameter->has_grad()) parameter->grad_to_add_to();  // an unused parameter: its gradient is zero
  bucket.launched = true;
  make_way(index);
  bucket.reduced = sum_over(groups_.replicas(bucket.place.family).inner, bucket.held_grads, bucket.part.grads,
                            options_.travel, bucket.name);
}

/// The inner replicas' sum of a bucket over the outer ones.
void GradBuffers::sum_outer(std::size_t index) {
  Bucket& bucket = buckets_[index];
  make_way(index);
  bucket.reduced = sum_over(groups_.replicas(bucket.place.family).outer, bucket.part.grads,
                            owned_[index].grads, options_.travel, bucket.name + " / outer");
}

/// What this rank needs of a bucket, over the axes beside the replicas. Those it is summed with need the
/// same stretch.
void GradBuffers::sum_further(std::size_t index) {
  const Bucket& bucket = buckets_[index];
  const std::string name = bucket.name + " / partial";
  const at::Tensor& needed = owned_[index].grads;
  switch (bucket.place.further) {
    case FurtherSum::kNone:
      return;
    case FurtherSum::kTensor:
      return groups_.tensor.all_reduce(needed, name).wait();
    case FurtherSum::kSharedRows:
      if (!bucket.cuts_grads) sum_shared_rows(bucket.parameters, groups_.tensor, name);
      return;
    case FurtherSum::kStages:
      return;  // in an order of its own
  }
}

/// Kind by kind: stages hold the kinds in different orders, and some hold two that others hold alone.
void GradBuffers::sum_over_stages() {
  for (const auto& [held_by, group] : groups_.stages)
    for (std::size_t b = 0; b < buckets_.size(); ++b)
      if (buckets_[b].place.held_by == held_by)
        group.all_reduce(owned_[b].grads, buckets_[b].parameters.front()->spec.name + " / stages").wait();
}

void GradBuffers::finish() {
  leave_backward();
  land();
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (!buckets_[b].cuts_grads && !buckets_[b].launched) launch(b);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].reduced.wait();
    add_up(b);
    if (buckets_[b].cuts_grads && !buckets_[b].summed) buckets_[b].part.grads.zero_();
    sum_outer(b);
  }
  for (Bucket& bucket : buckets_) bucket.reduced.wait();
  travelling_.reset();
  for (std::size_t b = 0; b < buckets_.size(); ++b) sum_further(b);
  sum_over_stages();
}

void GradBuffers::gather_params() {
  // First needed, first gathered: the buffers are in backward order.
  for (std::size_t b = buckets_.size(); b-- > 0;) {
    Bucket& bucket = buckets_[b];
    bucket.params.let_go();  // what it held is old
    bucket.gathered = sharers(bucket.place.family)
                          .all_gather(bucket.part.params, owned_[b].params, bucket.name + " / outer");
  }
  for (auto bucket = buckets_.rbegin(); bucket != buckets_.rend(); ++bucket) {
    if (distributed(bucket->place.family) && !bucket->cuts_params) {
      bucket->gathered.wait();
      bucket->gathered = groups_.replicas(bucket->place.family)
                             .inner.all_gather(bucket->held_params, bucket->part.params, bucket->name);
    }
    if (!options_.overlap_param_gather) bucket->gathered.wait();
  }
}

void GradBuffers::wait_for(const std::vector<tensor::Parameter*>& parameters) {
  for (const tensor::Parameter* parameter : parameters) wait_for(*parameter);
}

void GradBuffers::wait_for(const tensor::Parameter& parameter) {
  const auto found = bucket_of_.find(&parameter);
  if (found != bucket_of_.end()) buckets_[found->second].gathered.wait();
}

}  // namespace colonnade::data_parallel
