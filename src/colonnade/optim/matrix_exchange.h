// Assembles the matrices of a stage's parameters from the shards of its ranks, one rank per matrix, and
// returns a function of them. Muon needs whole matrices, while parameters and states are sharded over model-
// and data-parallel ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "colonnade/optim/update_rule.h"

namespace colonnade::optim {

/// Matrices of a parameter: itself [out, in], or each one of a stack [n, out, in], and ranges of their rows.
struct MatrixSplit {
  bool qkv = true;             ///< q, k and v rows of a fused weight
  bool gate_up = false;        ///< gate and up rows of a fused weight
  bool by_model_rank = false;  ///< each shard of a tensor rank by itself
};

class MatrixExchange {
 public:
  /// `scope`: the parameters, in the same order on all ranks of the stage, and this rank's shards of them.
  /// Communication: one all-gather of three numbers for each parameter.
  MatrixExchange(const UpdateScope& scope, const MatrixSplit& split, StageRanks stage);

  struct Functions {
    std::function<at::Tensor(const Segment&)> input;             ///< [numel] of a segment
    std::function<at::Tensor(const at::Tensor&)> of_matrix;      ///< [rows, columns] to the same shape
    std::function<void(const Segment&, const at::Tensor&)> use;  ///< with the result [numel] of a segment
  };
  /// Calls input() once for each segment, of_matrix() for each matrix of this rank, and use() once for each
  /// segment. All ranks of the stage call it. Elements with several holders are sent by the first of them and
  /// returned to all. Communication: two all-to-alls per round; a round has about 64 million elements per
  /// rank. On meta nothing is exchanged: the other ranks of a dry run do not exist.
  void run(const std::vector<const Segment*>& segments, const Functions& functions) const;

 private:
  /// Rows [first_row, first_row + rows) of matrix `stack` of a parameter.
  struct Matrix {
    std::size_t parameter = 0;
    std::int64_t stack = 0, first_row = 0, rows = 0, columns = 0;
    int model_rank = -1;  ///< with by_model_rank: the rank whose shard it is part of; rows are local
    int owner = 0;        ///< member that computes it
  };
  struct Parameter {
    const tensor::Parameter* parameter = nullptr;
    std::vector<layout::Shard> shards;  ///< by member
    std::vector<int> model_ranks;       ///< by member: index on the model axes
  };
  /// Local elements [begin, end) that a member updates.
  struct Held {
    std::int64_t begin = 0, end = 0;
    bool is_primary = false;  ///< sends its elements
  };
  /// Elements of a member's segment that lie in a matrix: rows of `length` elements.
  struct Grid {
    std::int64_t local = 0, local_stride = 0;    ///< in the segment
    std::int64_t matrix = 0, matrix_stride = 0;  ///< in the matrix
    std::int64_t rows = 0, length = 0;
  };
  enum class Way { kSend, kReturn };
  struct Round {
    std::size_t first = 0, last = 0;  ///< matrices [first, last)
  };

  class RoundTrip;

  void add_matrices(std::size_t index, const MatrixSplit& split);
  void add_shard(std::size_t index, std::size_t member, const MatrixSplit& split);
  void gather_held(const UpdateScope& scope);
  void assign_owners();
  void make_rounds();
  [[nodiscard]] std::vector<Grid> grids(const Matrix& matrix, int member, Way way) const;
  static void clip(const Grid& grid, const Held& held, std::vector<Grid>& found);
  [[nodiscard]] std::int64_t count(const Matrix& matrix, int member, Way way) const;

  StageRanks stage_;
  std::vector<Parameter> parameters_;
  std::vector<std::vector<Held>> held_;  ///< by parameter and member
  std::vector<Matrix> matrices_;
  std::vector<Round> rounds_;
  at::TensorOptions options_;
};

}  // namespace colonnade::optim
