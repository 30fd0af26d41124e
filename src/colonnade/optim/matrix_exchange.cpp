// See matrix_exchange.h.
#include "colonnade/optim/matrix_exchange.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/tensor/metric_sum.h"

namespace colonnade::optim {
namespace {

/// Maximum elements of a round per rank, on average.
constexpr std::int64_t kRoundElements = std::int64_t{1} << 26;

/// Index of a position on the model axes of a group.
int model_rank(const layout::Position& position, layout::ParamGroup group) {
  int index = 0;
  for (const layout::Axis axis : {layout::Axis::kTp, layout::Axis::kEtp, layout::Axis::kEp})
    if (layout::model_axes(group).has(axis)) index = index * position.size(axis) + position.coord(axis);
  return index;
}

/// Rows of a matrix [height, columns] of `spec` that are orthogonalized together: first row and number.
std::vector<std::pair<std::int64_t, std::int64_t>> row_ranges(const layout::ParamSpec& spec,
                                                              const MatrixSplit& split) {
  const auto row_dim = static_cast<int>(spec.shape.size()) - 2;
  const std::int64_t height = spec.shape[static_cast<std::size_t>(row_dim)];
  for (const layout::ShardedDim& sharded : spec.sharded_dims) {
    const std::string& role = sharded.segments.front().role;
    const bool splits = (role == "q" && split.qkv) || (role == "gate" && split.gate_up);
    if (sharded.dim != row_dim || !splits) continue;
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
    std::int64_t first = 0;
    for (const layout::DimSegment& segment : sharded.segments) {
      ranges.emplace_back(first, segment.size);
      first += segment.size;
    }
    return ranges;
  }
  return {{0, height}};
}

bool is_sharded(const layout::ParamSpec& spec, const layout::Shard& shard) {
  return spec.shape != shard.shape;
}

/// A parameter, or its local part, as a stack of matrices.
struct Stack {
  explicit Stack(const std::vector<std::int64_t>& shape)
      : stacks(shape.size() == 3 ? shape[0] : 1), height(shape[shape.size() - 2]), width(shape.back()) {}
  std::int64_t stacks, height, width;
};

at::Tensor rows_of(const at::Tensor& flat, std::int64_t at, std::int64_t stride, std::int64_t rows,
                   std::int64_t length) {
  return flat.as_strided({rows, length}, {stride, 1}, flat.storage_offset() + at);
}

}  // namespace

MatrixExchange::MatrixExchange(const UpdateScope& scope, const MatrixSplit& split, StageRanks stage)
    : stage_(std::move(stage)), options_(scope.options) {
  COL_CHECK(stage_.positions.size() == static_cast<std::size_t>(stage_.group.size()),
            "a stage must have a position for each rank; got {} for {}", stage_.positions.size(),
            stage_.group.size());
  for (const tensor::Parameter* p : scope.parameters) {
    Parameter& parameter = parameters_.emplace_back(Parameter{p, {}, {}});
    for (const layout::Position& position : stage_.positions) {
      parameter.shards.push_back(layout::shard(p->spec, position));
      parameter.model_ranks.push_back(model_rank(position, p->spec.param_group));
    }
  }
  gather_held(scope);
  for (std::size_t i = 0; i < parameters_.size(); ++i) add_matrices(i, split);
  assign_owners();
  make_rounds();
}

/// Every rank's ranges of the parameters.
void MatrixExchange::gather_held(const UpdateScope& scope) {
  std::vector<std::int64_t> own;
  for (const tensor::Parameter* p : scope.parameters) {
    const auto found = std::ranges::find(scope.segments, p, &Segment::parameter);
    const bool holds = found != scope.segments.end();
    const std::int64_t begin = holds ? (*found)->begin : 0;
    own.insert(own.end(),
               {begin, holds ? begin + (*found)->main.numel() : 0, holds && (*found)->is_primary ? 1 : 0});
  }
  const auto members = static_cast<std::size_t>(stage_.group.size());
  held_.assign(parameters_.size(), std::vector<Held>(members));
  if (own.empty() || options_.device().is_meta()) return;
  const at::Tensor mine = at::tensor(own, at::kLong).to(options_.device());
  const at::Tensor all = at::empty({stage_.group.size() * mine.numel()}, mine.options());
  stage_.group.all_gather(all, mine, "shards of matrices").wait();
  const at::Tensor host = tensor::to_host(all);
  const auto* numbers = host.const_data_ptr<std::int64_t>();
  for (std::size_t member = 0; member < members; ++member)
    for (std::size_t i = 0; i < parameters_.size(); ++i, numbers += 3)
      held_[i][member] = {numbers[0], numbers[1], numbers[2] != 0};
}

void MatrixExchange::add_matrices(std::size_t index, const MatrixSplit& split) {
  const Parameter& parameter = parameters_[index];
  const layout::ParamSpec& spec = parameter.parameter->spec;
  if (!split.by_model_rank || !is_sharded(spec, parameter.shards[0])) {
    const Stack whole(spec.shape);
    for (std::int64_t stack = 0; stack < whole.stacks; ++stack)
      for (const auto& [first, rows] : row_ranges(spec, split))
        matrices_.push_back(
            {.parameter = index, .stack = stack, .first_row = first, .rows = rows, .columns = whole.width});
    return;
  }
  std::vector<int> done;
  for (std::size_t member = 0; member < parameter.shards.size(); ++member) {
    const int rank = parameter.model_ranks[member];
    if (std::ranges::find(done, rank) != done.end()) continue;
    done.push_back(rank);
    add_shard(index, member, split);
  }
}

/// Adds the matrices of a member's shard. Its boxes follow one another in the order of their segments.
void MatrixExchange::add_shard(std::size_t index, std::size_t member, const MatrixSplit& split) {
  const Parameter& parameter = parameters_[index];
  const layout::Shard& shard = parameter.shards[member];
  const Stack local(shard.shape);
  const std::size_t row_dim = shard.shape.size() - 2;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges{{0, local.height}};
  if (row_ranges(parameter.parameter->spec, split).size() > 1) {
    ranges.clear();
    for (const layout::ShardBox& box : shard.boxes)
      ranges.emplace_back(box.local[row_dim], box.length[row_dim]);
  }
  for (std::int64_t stack = 0; stack < local.stacks; ++stack)
    for (const auto& [first, rows] : ranges)
      matrices_.push_back({.parameter = index,
                           .stack = stack,
                           .first_row = first,
                           .rows = rows,
                           .columns = local.width,
                           .model_rank = parameter.model_ranks[member]});
}

/// Longest matrices first, each to the rank with the least work so far; the same on all ranks.
void MatrixExchange::assign_owners() {
  const auto work = [](const Matrix& m) {
    return static_cast<double>(m.rows) * static_cast<double>(m.columns) *
           static_cast<double>(std::min(m.rows, m.columns));
  };
  std::vector<std::size_t> order(matrices_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, [&](std::size_t a, std::size_t b) { return work(matrices_[a]) > work(matrices_[b]); });
  std::vector<double> busy(static_cast<std::size_t>(stage_.group.size()));
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(busy);
    matrices_[i].owner = static_cast<int>(least - busy.begin());
    *least += work(matrices_[i]);
  }
}

/// Matrices of one parameter share a round.
void MatrixExchange::make_rounds() {
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    const bool continues = i > 0 && matrices_[i].parameter == matrices_[i - 1].parameter;
    if (rounds_.empty() || (!continues && elements > kRoundElements * stage_.group.size())) {
      rounds_.push_back({i, i});
      elements = 0;
    }
    rounds_.back().last = i + 1;
    elements += matrices_[i].rows * matrices_[i].columns;
  }
}

/// The part of a member's segment that lies in a matrix; on the way to its owner only elements that the
/// member sends.
std::vector<MatrixExchange::Grid> MatrixExchange::grids(const Matrix& matrix, int member, Way way) const {
  const auto index = static_cast<std::size_t>(member);
  const Parameter& parameter = parameters_[matrix.parameter];
  const Held& held = held_[matrix.parameter][index];
  std::vector<Grid> found;
  if (held.begin >= held.end || (way == Way::kSend && !held.is_primary)) return found;
  const layout::Shard& shard = parameter.shards[index];
  const Stack local(shard.shape);
  const auto add = [&](std::int64_t stack, std::int64_t row, std::int64_t column, Grid grid) {
    grid.local = (stack * local.height + row) * local.width + column;
    grid.local_stride = local.width;
    grid.matrix_stride = matrix.columns;
    clip(grid, held, found);
  };
  if (matrix.model_rank >= 0) {
    if (parameter.model_ranks[index] == matrix.model_rank)
      add(matrix.stack, matrix.first_row, 0, {.rows = matrix.rows, .length = matrix.columns});
    return found;
  }
  const std::size_t row_dim = shard.shape.size() - 2;
  for (const layout::ShardBox& box : shard.boxes) {
    if (way == Way::kSend && !box.owner) continue;
    const bool has_stacks = row_dim == 1;
    const std::int64_t stack = has_stacks ? matrix.stack - box.global[0] : 0;
    if (has_stacks && (stack < 0 || stack >= box.length[0])) continue;
    const std::int64_t first = std::max(matrix.first_row, box.global[row_dim]);
    const std::int64_t last =
        std::min(matrix.first_row + matrix.rows, box.global[row_dim] + box.length[row_dim]);
    if (first >= last) continue;
    add((has_stacks ? box.local[0] : 0) + stack, first - box.global[row_dim] + box.local[row_dim],
        box.local.back(),
        {.matrix = (first - matrix.first_row) * matrix.columns + box.global.back(),
         .rows = last - first,
         .length = box.length.back()});
  }
  return found;
}

/// Appends the elements of `grid` that lie in [held.begin, held.end), at offsets within it: the end of a
/// first row, full rows, and the beginning of a last row.
void MatrixExchange::clip(const Grid& grid, const Held& held, std::vector<Grid>& found) {
  const auto add = [&](std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t length) {
    if (rows <= 0 || length <= 0) return;
    Grid part = grid;
    part.local += row * grid.local_stride + column - held.begin;
    part.matrix += row * grid.matrix_stride + column;
    part.rows = rows;
    part.length = length;
    found.push_back(part);
  };
  const auto up = [](std::int64_t a, std::int64_t b) { return a <= 0 ? 0 : (a + b - 1) / b; };
  // Rows [first, last) lie within the range as a whole.
  const std::int64_t stride = grid.local_stride;
  const std::int64_t first = std::min(up(held.begin - grid.local, stride), grid.rows);
  const std::int64_t room = held.end - grid.local - grid.length;
  const std::int64_t last = room < 0 ? 0 : std::min(room / stride + 1, grid.rows);
  const auto partial = [&](std::int64_t row) {
    const std::int64_t begin = grid.local + row * stride;
    const std::int64_t from = std::max<std::int64_t>(held.begin - begin, 0);
    const std::int64_t to = std::min(held.end - begin, grid.length);
    add(row, 1, from, to - from);
  };
  if (first > 0) partial(first - 1);
  if (first < last) add(first, last - first, 0, grid.length);
  const std::int64_t after = std::max(first, last);
  if (after < grid.rows) partial(after);
}

std::int64_t MatrixExchange::count(const Matrix& matrix, int member, Way way) const {
  std::int64_t elements = 0;
  for (const Grid& grid : grids(matrix, member, way)) elements += grid.rows * grid.length;
  return elements;
}

/// One round: elements of the segments move to the matrices of this rank, and back.
class MatrixExchange::RoundTrip {
 public:
  RoundTrip(const MatrixExchange& exchange, const Round& round, const Functions& functions)
      : e_(exchange), round_(round), functions_(functions), me_(e_.stage_.group.rank()) {}

  void run(const std::vector<const Segment*>& by_parameter) {
    std::map<std::size_t, at::Tensor> inputs, results;
    for (std::size_t i = round_.first; i < round_.last; ++i) {
      const std::size_t p = e_.matrices_[i].parameter;
      if (by_parameter[p] == nullptr || inputs.contains(p)) continue;
      inputs[p] = functions_.input(*by_parameter[p]).to(e_.options_.dtype());
      results[p] = at::zeros_like(inputs[p]);
    }
    std::map<std::size_t, at::Tensor> matrices = gather(inputs);
    for (auto& [i, matrix] : matrices) matrix = functions_.of_matrix(matrix).contiguous();
    scatter(matrices, results);
    for (const auto& [p, result] : results) functions_.use(*by_parameter[p], result);
  }

 private:
  /// A buffer whose elements are written or read one grid after another.
  struct Cursor {
    at::Tensor buffer;
    std::int64_t at = 0;
    at::Tensor next(const Grid& grid) {
      const at::Tensor rows = rows_of(buffer, at, grid.length, grid.rows, grid.length);
      at += grid.rows * grid.length;
      return rows;
    }
  };

  static at::Tensor in_segment(const at::Tensor& segment, const Grid& g) {
    return rows_of(segment, g.local, g.local_stride, g.rows, g.length);
  }
  static at::Tensor in_matrix(const at::Tensor& matrix, const Grid& g) {
    return rows_of(matrix, g.matrix, g.matrix_stride, g.rows, g.length);
  }

  /// Calls use(matrix, grid) for the elements of this rank's segments, by owner of the matrix.
  template <typename F>
  void for_each_own_element(Way way, const F& use) const {
    for (int owner = 0; owner < e_.stage_.group.size(); ++owner)
      for (std::size_t i = round_.first; i < round_.last; ++i)
        if (e_.matrices_[i].owner == owner)
          for (const Grid& grid : e_.grids(e_.matrices_[i], me_, way)) use(i, grid);
  }
  /// Calls use(matrix, grid) for the elements of this rank's matrices, by member that holds them.
  template <typename F>
  void for_each_element_of_matrices(Way way, const F& use) const {
    for (int member = 0; member < e_.stage_.group.size(); ++member)
      for (std::size_t i = round_.first; i < round_.last; ++i)
        if (e_.matrices_[i].owner == me_)
          for (const Grid& grid : e_.grids(e_.matrices_[i], member, way)) use(i, grid);
  }

  /// Numbers of elements between this rank's segments and each owner, and its matrices and each member.
  struct Counts {
    std::vector<std::int64_t> segments, matrices;
  };
  [[nodiscard]] Counts counts(Way way) const {
    Counts all;
    for (int member = 0; member < e_.stage_.group.size(); ++member) {
      std::int64_t own = 0, theirs = 0;
      for (std::size_t i = round_.first; i < round_.last; ++i) {
        const Matrix& matrix = e_.matrices_[i];
        if (matrix.owner == member) own += e_.count(matrix, me_, way);
        if (matrix.owner == me_) theirs += e_.count(matrix, member, way);
      }
      all.segments.push_back(own);
      all.matrices.push_back(theirs);
    }
    return all;
  }
  [[nodiscard]] Cursor buffer_of(const std::vector<std::int64_t>& counts) const {
    return {at::empty({std::accumulate(counts.begin(), counts.end(), std::int64_t{0})}, e_.options_)};
  }

  std::map<std::size_t, at::Tensor> gather(const std::map<std::size_t, at::Tensor>& inputs) const {
    const Counts count = counts(Way::kSend);
    Cursor sent = buffer_of(count.segments), received = buffer_of(count.matrices);
    for_each_own_element(Way::kSend, [&](std::size_t i, const Grid& grid) {
      sent.next(grid).copy_(in_segment(inputs.at(e_.matrices_[i].parameter), grid));
    });
    e_.stage_.group.all_to_all(received.buffer, sent.buffer, {count.matrices, count.segments}, "matrices")
        .wait();
    std::map<std::size_t, at::Tensor> matrices;
    for (std::size_t i = round_.first; i < round_.last; ++i)
      if (e_.matrices_[i].owner == me_)
        matrices[i] = at::empty({e_.matrices_[i].rows, e_.matrices_[i].columns}, e_.options_);
    for_each_element_of_matrices(Way::kSend, [&](std::size_t i, const Grid& grid) {
      in_matrix(matrices.at(i), grid).copy_(received.next(grid));
    });
    return matrices;
  }

  void scatter(const std::map<std::size_t, at::Tensor>& matrices,
               std::map<std::size_t, at::Tensor>& results) const {
    const Counts count = counts(Way::kReturn);
    Cursor sent = buffer_of(count.matrices), received = buffer_of(count.segments);
    for_each_element_of_matrices(Way::kReturn, [&](std::size_t i, const Grid& grid) {
      sent.next(grid).copy_(in_matrix(matrices.at(i), grid));
    });
    e_.stage_.group
        .all_to_all(received.buffer, sent.buffer, {count.segments, count.matrices}, "matrices back")
        .wait();
    for_each_own_element(Way::kReturn, [&](std::size_t i, const Grid& grid) {
      in_segment(results.at(e_.matrices_[i].parameter), grid).copy_(received.next(grid));
    });
  }

  const MatrixExchange& e_;
  const Round& round_;
  const Functions& functions_;
  int me_;
};

void MatrixExchange::run(const std::vector<const Segment*>& segments, const Functions& functions) const {
  if (options_.device().is_meta()) {
    for (const Segment* s : segments) functions.use(*s, functions.input(*s));
    return;
  }
  std::vector<const Segment*> by_parameter(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto found = std::ranges::find(segments, parameters_[i].parameter, &Segment::parameter);
    if (found != segments.end()) by_parameter[i] = *found;
  }
  for (const Round& round : rounds_) RoundTrip(*this, round, functions).run(by_parameter);
}

}  // namespace colonnade::optim
