// The executable as real processes: starting it, waiting for its output, sending signals, reading its files.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace colonnade::e2e {

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

/// Seconds since 1970, the clock of file times.
double now_s();

/// A piece of output and its time of arrival.
struct Piece {
  double at_s;
  std::string text;
};

struct Result {
  int code = 0;      ///< exit code, or 128 + the signal that ended it
  std::string text;  ///< standard output and errors together
  std::vector<Piece> pieces;

  /// Time at which the first `text` had arrived completely; 0 when it never did.
  [[nodiscard]] double time_of(const std::string& text) const;
};

/// A running program. Its environment is this process's without the variables of launchers, schedulers and
/// COLONNADE_*, with one thread per process, and with `variables`.
class Program {
 public:
  explicit Program(const Words& words, const Variables& variables = {},
                   const std::filesystem::path& folder = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// Whether `done` became true while the program ran, within `limit_s`.
  bool wait_until(const std::function<bool()>& done, double limit_s = 120);
  /// Its output so far, as read by wait_until.
  [[nodiscard]] const std::string& text() const { return result_.text; }
  void send(int signal) const;
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Waits for its end; after `limit_s` it is killed and the exit code is 128 + SIGKILL.
  Result finish(double limit_s = 240);

 private:
  bool pump(int wait_ms);
  pid_t pid_ = -1;
  int pipe_ = -1;
  bool open_ = true;
  Result result_;
};

/// The living descendants of a process.
std::vector<pid_t> descendants(pid_t process);

Result run(const Words& words, const Variables& variables = {}, const std::filesystem::path& folder = {});

Words operator+(Words a, const Words& b);

/// The command without root's permission to ignore file modes.
Words as_plain_user(const Words& command);

/// `colonnade WORDS`.
Words colonnade(const Words& words);
/// `colonnade launch --nproc-per-node RANKS --log-dir FOLDER/logs MORE -- WORDS`.
Words launch(int ranks, const std::filesystem::path& folder, const Words& words, const Words& more = {});

/// A small GPT on mock data: 2 layers, hidden size 64, 4 sequences of 32 tokens per step, with dropout,
/// a checkpoint every 2 steps.
Words small_gpt();

/// Flags of fill-in-the-middle with GPT-2's tokenizer and four of its tokens.
Words fill_in_the_middle();

/// A TCP port that is currently free.
std::string free_port();

/// A temporary folder, removed with its contents at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// The commands of a page of docs/guide (its `sh` blocks), in order.
std::string commands_of_guide(const std::string& page);
/// Runs commands in the folder, with `colonnade` in PATH, until one fails.
Result shell(const TempFolder& folder, const std::string& commands);

/// Modification time of the file, on the clock of now_s().
double written_s(const std::filesystem::path& path);
std::string read_text(const std::filesystem::path& path);
void write_text(const std::filesystem::path& path, const std::string& text);

/// The lines of RUN/validation.jsonl; empty when it does not exist.
std::vector<nlohmann::json> validations(const std::filesystem::path& run_folder);

/// Output of `colonnade evaluate`.
struct Evaluated {
  double loss = 0, tokens = 0;
  double sop_loss = 0;  ///< 0 without this head
};
/// Runs an evaluate command that is expected to succeed.
Evaluated evaluated(const Words& command);

/// The values of a tensor of a safetensors file.
template <typename T>
std::vector<T> read_tensor(const std::filesystem::path& path, const std::string& name) {
  const std::string file = read_text(path);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  const auto offsets = nlohmann::json::parse(file.substr(8, length)).at(name).at("data_offsets");
  const std::size_t begin = offsets[0], end = offsets[1];
  std::vector<T> values((end - begin) / sizeof(T));
  std::memcpy(values.data(), file.data() + 8 + length + begin, end - begin);
  return values;
}

/// The lines of RUN/metrics.jsonl; empty when it does not exist.
std::vector<nlohmann::json> metrics(const std::filesystem::path& run_folder);
/// Expects the losses of these names, norms and token counts of the last `count` steps to equal those of
/// another layout.
void expect_equal_ends(const std::vector<nlohmann::json>& expected, const std::vector<nlohmann::json>& got,
                       std::size_t count, const Words& losses = {"lm_loss"});
/// Iterations in RUN/metrics.jsonl.
std::vector<int> iterations(const std::filesystem::path& run_folder);

/// Differences between two checkpoints of one layout: names of files whose bytes differ or that one
/// lacks (weights and optimizer states), keys of the state but the settings. Empty: they are equal.
std::vector<std::string> differences(const std::filesystem::path& step_folder_a,
                                     const std::filesystem::path& step_folder_b);

}  // namespace colonnade::e2e
