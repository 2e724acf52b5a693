#include "envs/linux/command.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "envs/linux/file_descriptor.h"

namespace bbrgym {

namespace {

constexpr Nanoseconds kLongestWait = 5 * kMillisecond;
constexpr int kLongestWaitMs = 5;
constexpr Nanoseconds kGrace = kSecond;  // to end after SIGTERM, then comes SIGKILL
constexpr std::size_t kMostText = 2000;  // of standard error that an error message repeats
constexpr int kNoCommand = 127;          // what a shell returns if it finds no such program
constexpr int kNiceness = -5;            // before other work on the machine, not far before who drives the engine

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};

Pipe MakePipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) ThrowErrno("cannot make a pipe");
  return {.read = FileDescriptor(ends[0]), .write = FileDescriptor(ends[1])};
}

// What follows runs in children of a process with threads, and calls only what is safe there: nothing allocates.

[[noreturn]] void Execute(char* const* arguments) {
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const sched_param plain{};
  sched_setscheduler(0, SCHED_OTHER, &plain);
  setpriority(PRIO_PROCESS, 0, kNiceness);  // where it is allowed
  execvp(arguments[0], arguments);
  const char* reason = strerrordesc_np(errno);
  for (const char* text : {"cannot run ", static_cast<const char*>(arguments[0]), ": ", reason, "\n"}) {
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) break;
  }
  _exit(kNoCommand);
}

/// The first process of a process namespace: with its end, the kernel kills all others there. It ends with the command,
/// or when the other end of `life` is closed, and passes on SIGTERM.
[[noreturn]] void BeFirstProcess(char* const* arguments, int errors, int life) {
  constexpr int kFirstOther = 4;  // after the three standard ones and `life`
  const int nothing = open("/dev/null", O_RDWR);
  // Numbers from 100 on, so that no copy replaces one that is still needed.
  const int life_copy = fcntl(life, F_DUPFD_CLOEXEC, 100);
  const int errors_copy = fcntl(errors, F_DUPFD_CLOEXEC, 100);
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDOUT_FILENO);
  dup2(errors_copy, STDERR_FILENO);
  dup3(life_copy, kFirstOther - 1, O_CLOEXEC);
  if (syscall(SYS_close_range, kFirstOther, ~0U, 0) != 0) {
    for (int descriptor = kFirstOther; descriptor < 4096; ++descriptor) close(descriptor);
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGCHLD);
  sigprocmask(SIG_SETMASK, &signals, nullptr);
  const int signals_in = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  const pid_t command = fork();
  if (command < 0) _exit(kNoCommand);
  if (command == 0) Execute(arguments);
  for (;;) {
    std::array<pollfd, 2> sources{{{kFirstOther - 1, POLLIN, 0}, {signals_in, POLLIN, 0}}};
    poll(sources.data(), sources.size(), -1);
    if (sources[0].revents != 0) _exit(1);  // who started it is gone
    signalfd_siginfo info{};
    while (read(signals_in, &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo == SIGTERM) kill(-1, SIGTERM);
    }
    int status = 0;
    for (pid_t ended = waitpid(-1, &status, WNOHANG); ended > 0; ended = waitpid(-1, &status, WNOHANG)) {
      if (ended == command) _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
  }
}

}  // namespace

Command::Command(std::vector<std::string> arguments, const NetworkNamespace& side, const EpisodeClock& clock,
                 Nanoseconds start, Nanoseconds stop)
    : arguments_(std::move(arguments)), clock_(clock), start_(start), stop_(stop) {
  thread_ = std::thread([this, &side] {
    try {
      side.Run([this] { Supervise(); });
    } catch (const std::runtime_error& error) {
      const std::lock_guard lock(mutex_);
      failure_ = error.what();
    }
    is_over_ = true;
  });
}

Command::~Command() {
  is_killed_ = true;
  thread_.join();
}

std::optional<Command::Ending> Command::ending() const {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw std::runtime_error(failure_);
  return ending_;
}

std::string Command::LastLines() const {
  const std::lock_guard lock(mutex_);
  std::string text = last_lines_;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// Runs in the network namespace.
void Command::Supervise() {
  while (clock_.Now() < start_) {
    if (is_killed_ || is_asked_to_end_) return;
    const timespec nap{.tv_sec = 0, .tv_nsec = std::clamp<Nanoseconds>(start_ - clock_.Now(), 0, kLongestWait)};
    nanosleep(&nap, nullptr);
  }
  if (unshare(CLONE_NEWPID) != 0) ThrowErrno("cannot make a process namespace for a command");
  std::vector<char*> arguments;
  for (std::string& argument : arguments_) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  Pipe errors = MakePipe();
  const Pipe life = MakePipe();
  const pid_t process = fork();
  if (process < 0) ThrowErrno("cannot start a command");
  if (process == 0) BeFirstProcess(arguments.data(), errors.write.get(), life.read.get());
  errors.write = FileDescriptor();
  fcntl(errors.read.get(), F_SETFL, O_NONBLOCK);
  Watch(process, errors.read.get());
}

void Command::Watch(int process, int errors) {
  Nanoseconds told = kNever;  // when it was asked to end
  bool is_dead = false;
  bool is_readable = true;
  int status = 0;
  pid_t ended = 0;
  while (ended == 0) {
    pollfd source{is_readable ? errors : -1, POLLIN, 0};
    poll(&source, 1, kLongestWaitMs);
    if (source.revents != 0) is_readable = ReadErrors(errors);
    const Nanoseconds now = clock_.Now();
    if (told == kNever && (is_asked_to_end_ || now >= stop_)) {
      told = now;
      kill(process, SIGTERM);
    }
    const bool is_deaf = told != kNever && now - told > kGrace;
    if ((is_killed_ || is_deaf) && !std::exchange(is_dead, true)) kill(process, SIGKILL);
    ended = waitpid(process, &status, WNOHANG);
  }
  ReadErrors(errors);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  const std::lock_guard lock(mutex_);
  ending_ = {.time = clock_.Now(), .status = told != kNever || is_dead ? 0 : code};
}

bool Command::ReadErrors(int errors) {
  std::array<char, 4096> chunk{};
  for (;;) {
    const ssize_t bytes = read(errors, chunk.data(), chunk.size());
    if (bytes <= 0) return bytes < 0 && (errno == EAGAIN || errno == EINTR);
    const std::lock_guard lock(mutex_);
    last_lines_.append(chunk.data(), static_cast<std::size_t>(bytes));
    if (last_lines_.size() > kMostText) last_lines_.erase(0, last_lines_.size() - kMostText);
  }
}

}  // namespace bbrgym
