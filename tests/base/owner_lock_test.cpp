// Lock acquisition: after a release, after a crash of the process or machine, with and without flock, and
// under contention.
#include "colonnade/base/owner_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <thread>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/progress.h"

namespace colonnade {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class OwnerLockTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "owner-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    file_ = folder_ / "owner.txt";
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// Short time-outs for fast tests.
  static OwnerLockOptions quick(bool flock = true) {
    return {.thing = "--save",
            .fix = "choose another folder",
            .grace_s = 0.3,
            .refresh_s = 0.1,
            .stale_s = 1,
            .lease_s = 2,
            .flock = flock};
  }

  /// Error of a second owner; "" if it gets the lock. Sets `seconds_` to the time this took.
  std::string lock_error(const OwnerLockOptions& options) {
    const std::int64_t begin = monotonic_ns();
    std::string what;
    try {
      const OwnerLock lock(file_, options);
    } catch (const ConfigError& error) {
      what = error.what();
    }
    seconds_ = static_cast<double>(monotonic_ns() - begin) * 1e-9;
    return what;
  }

  /// Pid of a process that took the lock and was killed by SIGKILL.
  pid_t die_as_owner(bool flock) const {
    const pid_t child = ::fork();
    if (child == 0) {
      const OwnerLock lock(file_, quick(flock));
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return child;
  }

  /// Record of a process on another machine.
  std::string remote_record(const std::string& id) const {
    return "host: n77\nboot: another\npid_namespace: pid:[1]\npid: 4711\nstart_ticks: 5\n"
           "since: 2026-11-21 13:04:08 UTC\njob: Slurm job 77\nid: " +
           id + "\n";
  }
  void write_record(const std::string& text) const { std::ofstream(file_) << text; }
  void set_age(double seconds) const {
    fs::last_write_time(file_, fs::file_time_type::clock::now() -
                                   std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3)));
  }

  fs::path folder_, file_;
  double seconds_ = 0;
};

TEST_F(OwnerLockTest, SecondProcessGetsAnErrorNamingTheOwner) {
  for (const bool flock : {true, false}) {
    {
      const OwnerLock lock(file_, quick(flock));
      EXPECT_THAT(
          lock_error(quick(flock)),
          AllOf(HasSubstr("--save: one process at a time may write the folder; got " + folder_.string()),
                HasSubstr("pid " + std::to_string(::getpid())), HasSubstr("host "),
                testing::ContainsRegex("since 20[0-9-]+ [0-9:]+ UTC"), HasSubstr("; choose another folder")));
      EXPECT_LT(seconds_, 10);
      EXPECT_EQ(read_owner(file_)->pid, ::getpid());
    }
    EXPECT_FALSE(fs::exists(file_)) << "the folder has no owner";
    EXPECT_EQ(lock_error(quick(flock)), "");
  }
}

TEST_F(OwnerLockTest, LockPassesOnIfTheOwnerExitsWithinTheGracePeriod) {
  auto lock = std::make_unique<OwnerLock>(file_, quick());
  std::jthread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    lock.reset();
  });
  OwnerLockOptions patient = quick();
  patient.grace_s = 60;
  EXPECT_EQ(lock_error(patient), "");
  EXPECT_GE(seconds_, 0.4);
}

TEST_F(OwnerLockTest, KilledOwnerIsDetectedAtOnce) {
  for (const bool flock : {true, false}) {
    OwnerLockOptions impatient = quick(flock);
    impatient.stale_s = 600;
    const pid_t dead = die_as_owner(flock);
    ASSERT_EQ(read_owner(file_)->pid, dead) << "the record stays";
    EXPECT_EQ(lock_error(impatient), "");
    EXPECT_LT(seconds_, 30);
  }
}

TEST_F(OwnerLockTest, ReusedPidIsNotTheOwner) {
  Owner old = owner_of_process();
  write_record("host: h\nboot: " + old.boot + "\npid_namespace: " + old.pid_namespace +
               "\npid: " + std::to_string(::getpid()) +
               "\nstart_ticks: " + std::to_string(old.start_ticks - 1) + "\nsince: then\njob: \nid: 1\n");
  OwnerLockOptions options = quick(/*flock=*/false);
  options.stale_s = 600;
  EXPECT_EQ(lock_error(options), "");
}

TEST_F(OwnerLockTest, FreeFlockProvesDeathUnderOneKernelAcrossContainers) {
  const Owner me = owner_of_process();
  write_record("host: pod\nboot: " + me.boot +
               "\npid_namespace: pid:[1]\npid: 1\nstart_ticks: 1\nsince: then\njob: \nid: 1\n");
  OwnerLockOptions options = quick();
  options.stale_s = 600;
  EXPECT_EQ(lock_error(options), "");
  EXPECT_LT(seconds_, 60);
}

TEST_F(OwnerLockTest, RemoteOwnerWithAStaleHeartbeatIsDeadAtOnce) {
  write_record(remote_record("1"));
  set_age(3600);
  EXPECT_EQ(lock_error(quick()), "");
  EXPECT_LT(seconds_, 0.9) << "decided by the file system's clock without waiting";
}

TEST_F(OwnerLockTest, RemoteOwnerThatJustCrashedIsWaitedFor) {
  for (const bool flock : {true, false}) {
    write_record(remote_record("1"));
    EXPECT_EQ(lock_error(quick(flock)), "");
    EXPECT_GE(seconds_, 0.9) << "it may be alive until stale_s has passed";
  }
}

TEST_F(OwnerLockTest, RemoteOwnerWithHeartbeatsKeepsTheLock) {
  write_record(remote_record("1"));
  std::atomic<bool> over{false};
  std::jthread lives([&] {
    for (; !over; std::this_thread::sleep_for(std::chrono::milliseconds(50))) set_age(0);
  });
  for (const bool flock : {true, false})
    EXPECT_THAT(lock_error(quick(flock)),
                HasSubstr("held by host n77, pid 4711, since 2026-11-21 13:04:08 UTC, Slurm "
                          "job 77; choose another folder"));
  over = true;
}

TEST_F(OwnerLockTest, WaitEndsOnAStopRequest) {
  write_record(remote_record("1"));
  set_age(0);
  OwnerLockOptions options = quick();
  options.stale_s = options.lease_s = 600;
  int asked = 0;
  options.stop = [&] { return ++asked == 2; };
  EXPECT_THROW(OwnerLock(file_, options), StopRequested);
  EXPECT_EQ(asked, 2);
}

TEST_F(OwnerLockTest, LockWithoutARecordIsWaitedForThenReported) {
  const int fd = ::open(file_.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::lockf(fd, F_TLOCK, 0), 0);  // a POSIX lock: ignored
  EXPECT_EQ(lock_error(quick()), "");
  ::close(fd);
  const pid_t child = ::fork();
  if (child == 0) {
    const OwnerLock lock(file_, quick());
    ::truncate(file_.c_str(), 0);
    for (;;) ::pause();
  }
  while (!fs::exists(file_) || fs::file_size(file_) != 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_THAT(lock_error(quick()), HasSubstr("an unnamed process"));
  EXPECT_GE(seconds_, 1.9);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(OwnerLockTest, ExactlyOneOfManyContendersGetsTheLock) {
  for (const bool flock : {true, false}) {
    std::atomic<int> owners{0}, rejected{0};
    std::vector<std::jthread> all;
    std::atomic<bool> end{false};
    for (int i = 0; i < 8; ++i)
      all.emplace_back([&] {
        try {
          const OwnerLock lock(file_, quick(flock));
          ++owners;
          while (!end) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        } catch (const ConfigError&) {
          ++rejected;
        }
      });
    for (int i = 0; i < 3000 && owners + rejected < 8; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(owners, 1) << flock;
    EXPECT_EQ(rejected, 7) << flock;
    end = true;
  }
}

TEST_F(OwnerLockTest, OwnerThatLostTheLockIsNotified) {
  std::atomic<bool> lost{false};
  OwnerLockOptions options = quick();
  options.on_loss = [&](const std::string& what) {
    EXPECT_THAT(what, HasSubstr("is now held by host n77, pid 4711"));
    lost = true;
  };
  {
    const OwnerLock lock(file_, options);
    fs::remove(file_);  // as if another machine took it, whose locks are invisible here
    write_record(remote_record("2"));
    for (int i = 0; i < 1000 && !lost; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(lost);
  EXPECT_EQ(read_owner(file_)->id, "2") << "the old owner must not remove it";
}

TEST_F(OwnerLockTest, RemovedFileIsRewritten) {
  for (const bool asked : {true, false}) {
    OwnerLock lock(file_, quick());
    fs::remove(file_);
    if (asked) {
      EXPECT_TRUE(lock.confirm());
    } else {
      for (int i = 0; i < 1000 && !read_owner(file_); ++i)  // until it exists and is written
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_TRUE(read_owner(file_));
    EXPECT_EQ(read_owner(file_)->pid, ::getpid());
    EXPECT_THAT(lock_error(quick()), HasSubstr("one process at a time"));
  }
  EXPECT_FALSE(fs::exists(file_));
}

TEST_F(OwnerLockTest, SuspendedProcessThatLostTheLockExitsWith2) {
  const pid_t child = ::fork();
  if (child == 0) {
    const OwnerLock lock(file_, quick());
    for (;;) ::pause();
  }
  while (!read_owner(file_)) std::this_thread::yield();
  write_record(remote_record("2"));
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kExitSettings) << status;
}

TEST_F(OwnerLockTest, HeartbeatsUpdateTheModificationTime) {
  const OwnerLock lock(file_, quick());
  set_age(3600);
  const auto old = fs::last_write_time(file_);
  for (int i = 0; i < 1000 && fs::last_write_time(file_) == old; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_GT(fs::last_write_time(file_), old);
}

TEST_F(OwnerLockTest, RecreatedFileIsReopenedWhileWaiting) {
  auto first = std::make_unique<OwnerLock>(file_, quick());
  OwnerLockOptions patient = quick();
  patient.grace_s = 60;
  std::string second = "pending";
  std::jthread waits([&] { second = lock_error(patient); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  first.reset();  // removes the file that the waiting one has open
  waits.join();
  EXPECT_EQ(second, "");
}

TEST_F(OwnerLockTest, FullDiskAndReadOnlyFolderAreConfigErrors) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_FSIZE, &none);
    const std::string what = lock_error(quick());
    ::_exit(what.find("owner.txt must fit on its disk") != std::string::npos &&
                    what.find(" free of ") != std::string::npos
                ? 0
                : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  file_ = "/proc/owner.txt";
  EXPECT_THAT(lock_error(quick()), HasSubstr("the folder must be writable; got /proc ("));
}

TEST(Owner, FilesOfOtherFormatsHaveNoOwner) {
  EXPECT_FALSE(read_owner("/proc/version"));
  EXPECT_FALSE(read_owner("/no/such/file"));
}

}  // namespace
}  // namespace colonnade
