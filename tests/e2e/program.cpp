// See program.h.
#include "program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

#include "colonnade/launch/process.h"
#include "support/vectors.h"

namespace colonnade::e2e {

namespace fs = std::filesystem;

double now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double Result::time_of(const std::string& wanted) const {
  std::string so_far;
  for (const Piece& piece : pieces) {
    so_far += piece.text;
    if (so_far.find(wanted) != std::string::npos) return piece.at_s;
  }
  return 0;
}

namespace {

bool places_a_rank(const std::string& name) {
  for (const char* prefix :
       {"RANK=", "WORLD_SIZE=", "LOCAL_", "MASTER_", "SLURM_", "PET_", "TORCHELASTIC_", "COLONNADE_"})
    if (name.starts_with(prefix)) return true;
  return false;
}

std::vector<std::string> environment_with(const Variables& variables) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!places_a_rank(*entry) && !std::string(*entry).starts_with("OMP_NUM_THREADS="))
      all.emplace_back(*entry);
  if (!variables.contains("OMP_NUM_THREADS")) all.emplace_back("OMP_NUM_THREADS=1");
  for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

}  // namespace

Program::Program(const Words& words, const Variables& variables, const fs::path& folder) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const std::vector<std::string> environment = environment_with(variables);
  const auto arguments = pointers(words);
  const auto entries = pointers(environment);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::setpgid(0, 0);
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    if (!folder.empty() && ::chdir(folder.c_str()) != 0) ::_exit(126);
    ::execvpe(arguments[0], arguments.data(), entries.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  pipe_ = ends[0];
}

Program::~Program() {
  if (pid_ > 0) {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(pipe_);
}

bool Program::pump(int wait_ms) {
  pollfd waiting{pipe_, POLLIN, 0};
  if (!open_ || ::poll(&waiting, 1, wait_ms) <= 0) return open_;
  std::array<char, 4096> bytes;
  const ssize_t got = ::read(pipe_, bytes.data(), bytes.size());
  open_ = got > 0;
  if (!open_) return false;
  result_.pieces.push_back({now_s(), {bytes.data(), static_cast<std::size_t>(got)}});
  result_.text += result_.pieces.back().text;
  return true;
}

bool Program::wait_until(const std::function<bool()>& done, double limit_s) {
  for (const double end = now_s() + limit_s; now_s() < end;) {
    if (done()) return true;
    if (!pump(20)) return false;
  }
  return false;
}

void Program::send(int signal) const { ::kill(pid_, signal); }

Result Program::finish(double limit_s) {
  const double end = now_s() + limit_s;
  while (pump(100))
    if (now_s() > end) ::kill(-pid_, SIGKILL);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  result_.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return std::move(result_);
}

std::vector<pid_t> descendants(pid_t process) {
  std::vector<std::pair<pid_t, pid_t>> parents;  // of each process
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string stat = read_text(entry.path() / "stat");  // "12 (name) S 1 ..."
    pid_t parent = 0;
    if (const auto name_end = stat.rfind(')'); name_end != std::string::npos)
      std::istringstream(stat.substr(name_end + 3)) >> parent;
    if (parent != 0) parents.emplace_back(std::stoi(stat), parent);
  }
  std::vector<pid_t> found{process};
  for (std::size_t i = 0; i < found.size(); ++i)
    for (const auto& [child, parent] : parents)
      if (parent == found[i]) found.push_back(child);
  found.erase(found.begin());
  return found;
}

Result run(const Words& words, const Variables& variables, const fs::path& folder) {
  return Program(words, variables, folder).finish();
}

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Words as_plain_user(const Words& command) {
  if (::geteuid() != 0) return command;
  const std::string dropped = "-dac_override,-dac_read_search";
  return Words{"setpriv", "--bounding-set", dropped, "--inh-caps", dropped, "--"} + command;
}

Words colonnade(const Words& words) { return Words{COLONNADE_EXECUTABLE} + words; }

Words launch(int ranks, const fs::path& folder, const Words& words, const Words& more) {
  return colonnade(
             {"launch", "--nproc-per-node", std::to_string(ranks), "--log-dir", (folder / "logs").string()}) +
         more + Words{"--"} + words;
}

Words small_gpt() {
  return {"pretrain",
          "gpt",
          "--num-layers",
          "2",
          "--hidden-size",
          "64",
          "--num-attention-heads",
          "4",
          "--seq-length",
          "32",
          "--max-position-embeddings",
          "32",
          "--micro-batch-size",
          "1",
          "--global-batch-size",
          "4",
          "--lr",
          "1e-3",
          "--lr-decay-iters",
          "8",
          "--mock-data",
          "--tokenizer-type",
          "NullTokenizer",
          "--vocab-size",
          "128",
          "--save-interval",
          "2"};
}

Words fill_in_the_middle() {
  return {"--tokenizer-type=HuggingFaceTokenizer",
          "--tokenizer-model",
          test::vectors() + "/tokenizers/gpt2_bpe.json",
          "--fim-data",
          "--fim-prefix-token=<",
          "--fim-middle-token=>",
          "--fim-suffix-token=^",
          "--fim-pad-token=~",
          "--fim-rate=0.9"};
}

std::string free_port() { return std::to_string(launch::free_port()); }

TempFolder::TempFolder() {
  std::string name = (fs::temp_directory_path() / "e2e-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for a test");
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

double written_s(const fs::path& path) {
  const auto written = fs::file_time_type::clock::to_sys(fs::last_write_time(path));
  return std::chrono::duration<double>(written.time_since_epoch()).count();
}

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string commands_of_guide(const std::string& page) {
  std::istringstream lines(read_text(fs::path(COLONNADE_DOCS) / "guide" / page));
  std::string commands;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      inside = line == "```sh";
    } else if (inside) {
      commands += line + "\n";
    }
  }
  return commands;
}

Result shell(const TempFolder& folder, const std::string& commands) {
  if (!fs::exists(folder / "colonnade")) fs::create_symlink(COLONNADE_EXECUTABLE, folder / "colonnade");
  return run({"bash", "-euc", "export PATH=\"$PWD:$PATH\"\n" + commands}, {}, folder.path());
}

namespace {

std::vector<nlohmann::json> json_lines(const fs::path& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace

std::vector<nlohmann::json> metrics(const fs::path& run_folder) {
  return json_lines(run_folder / "metrics.jsonl");
}

std::vector<nlohmann::json> validations(const fs::path& run_folder) {
  return json_lines(run_folder / "validation.jsonl");
}

void expect_equal_ends(const std::vector<nlohmann::json>& expected, const std::vector<nlohmann::json>& got,
                       std::size_t count, const Words& losses) {
  ASSERT_GE(expected.size(), count);
  ASSERT_GE(got.size(), count);
  for (std::size_t i = 1; i <= count; ++i) {
    const auto &a = expected[expected.size() - i], &b = got[got.size() - i];
    for (const std::string& loss : losses)
      EXPECT_NEAR(b.at(loss), a.at(loss).get<double>(), 2e-5 * a.at(loss).get<double>())
          << loss << " " << a.at("iteration");
    const double norm = a.at("grad_norm");
    EXPECT_NEAR(b.at("grad_norm"), norm, 1e-4 * norm) << a.at("iteration");
    EXPECT_EQ(b.at("consumed_tokens"), a.at("consumed_tokens")) << a.at("iteration");
  }
}

Evaluated evaluated(const Words& command) {
  const Result result = run(command);
  EXPECT_EQ(result.code, 0) << result.text;
  const auto number_after = [&](const std::string& name) {
    const std::size_t at = result.text.find(name);
    return at == std::string::npos ? 0 : std::stod(result.text.substr(at + name.size()));
  };
  return {number_after(": loss "), number_after("  tokens "), number_after("  sop_loss ")};
}

std::vector<int> iterations(const fs::path& run_folder) {
  std::vector<int> all;
  for (const auto& line : metrics(run_folder)) all.push_back(line.at("iteration").get<int>());
  return all;
}

namespace {

std::set<std::string> tensor_files(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder, absent))
    if (entry.path().extension() == ".safetensors") names.insert(entry.path().filename());
  return names;
}

nlohmann::json state_of(const fs::path& folder) {
  auto state = nlohmann::json::parse(read_text(folder / "manifest.json")).at("state");
  state.erase("settings");
  return state;
}

}  // namespace

std::vector<std::string> differences(const fs::path& a, const fs::path& b) {
  std::vector<std::string> found;
  std::set<std::string> names = tensor_files(a);
  names.merge(tensor_files(b));
  if (names.empty()) found.push_back("no tensors in " + a.string());
  for (const std::string& name : names)
    if (!fs::exists(a / name) || !fs::exists(b / name) || read_text(a / name) != read_text(b / name))
      found.push_back(name);
  if (!found.empty()) return found;
  const auto state = state_of(a);
  const auto other = state_of(b);
  for (const auto& [key, value] : state.items())
    if (!other.contains(key) || other.at(key) != value) found.push_back("state: " + key);
  return found;
}

}  // namespace colonnade::e2e
