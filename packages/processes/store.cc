// Process 0 keeps the texts; the others ask it by messages, one question of a process at a time.

#include <fmt/format.h>
#include <postern/error.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <thread>
#include <vector>

#include "joined.h"

namespace postern::internal::clusters {

namespace {

using Clock = std::chrono::steady_clock;

/// What goes before the key and the value of a question, and before the value of an answer, which
/// has its question's number.
struct Envelope {
  enum class Kind : std::uint32_t { put, get, found, missing };
  Kind kind;
  std::uint32_t key_bytes;
  std::uint64_t value_bytes, number;
};

// The last tags: those of runs count from the first.
int question_tag(const Transport& t) { return t.tags - 1; }
int answer_tag(const Transport& t) { return t.tags - 2; }

std::vector<char> message(Envelope::Kind kind, std::uint64_t number, const std::string& key,
                          const std::string& value) {
  const Envelope head{kind, static_cast<std::uint32_t>(key.size()), value.size(), number};
  std::vector<char> out(sizeof head);
  std::memcpy(out.data(), &head, sizeof head);
  out.insert(out.end(), key.begin(), key.end());
  out.insert(out.end(), value.begin(), value.end());
  return out;
}

struct Read {
  Envelope::Kind kind = Envelope::Kind::missing;
  std::uint64_t number = 0;
  std::string key, value;
};
Read read(const std::vector<char>& bytes) {
  Envelope head{};
  std::memcpy(&head, bytes.data(), std::min(sizeof head, bytes.size()));
  if (bytes.size() != sizeof head + head.key_bytes + head.value_bytes)
    throw Error(ErrorCode::internal, "a message of the processes' store was cut short");
  const char* const key = bytes.data() + sizeof head;
  return {head.kind, head.number, {key, head.key_bytes}, {key + head.key_bytes, head.value_bytes}};
}

[[noreturn]] void throw_transport(const char* error) {
  throw Error(ErrorCode::unavailable, fmt::format("the processes' store: {}", error));
}

/// A message's memory, which a list can take without any more.
using Memory = std::list<std::vector<char>>;

/// The transport may still work on what was given up.
void keep_given_up(Memory& memory) {
  static Mutex guard;
  static auto* const given_up = new Memory;
  const std::scoped_lock lock(guard);
  given_up->splice(given_up->end(), memory);
}

/// Waits until `until` for a message from or into this memory, which must be there or under way.
void end(const Transport& transport, Transport::Request& request, Memory& memory,
         Clock::time_point until) {
  for (bool through = false; !through;) {
    if (const char* error = transport.test(&request, &through)) throw_transport(error);
    if (through) return;
    if (Clock::now() > until) {
      transport.abandon(&request);
      keep_given_up(memory);
      throw Error(ErrorCode::unavailable, "the processes' store: process 0 does not answer");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void send(const Transport& transport, int to, int tag, std::vector<char> bytes,
          Clock::time_point until) {
  Transport::Request request;
  Memory memory(1);
  memory.front() = std::move(bytes);
  if (const char* error =
          transport.send(to, tag, memory.front().data(), memory.front().size(), &request))
    throw_transport(error);
  end(transport, request, memory, until);
}

/// The message under this tag, if one has come.
std::optional<std::pair<int, std::vector<char>>> receive(const Transport& transport, int tag,
                                                         Clock::time_point until) {
  bool there = false;
  int from = 0;
  std::size_t bytes = 0;
  if (const char* error = transport.look(tag, &there, &from, &bytes)) throw_transport(error);
  if (!there) return {};
  Memory memory(1);
  memory.front().resize(bytes);
  Transport::Request request;
  if (const char* error = transport.receive(from, tag, memory.front().data(), bytes, &request))
    throw_transport(error);
  end(transport, request, memory, until);
  return std::pair(from, std::move(memory.front()));
}

}  // namespace

namespace {

/// On process 0.
struct Keeper {
  Mutex guard;
  Condition more;
  std::map<std::string, std::string> texts;
  std::atomic<bool> stop{false};
  std::thread thread;

  void put(const std::string& key, const std::string& value) {
    const std::scoped_lock lock(guard);
    texts.insert_or_assign(key, value);  // whole, or not at all
    more.notify_all();
  }
  std::optional<std::string> find(const std::string& key) {
    const std::scoped_lock lock(guard);
    const auto found = texts.find(key);
    if (found == texts.end()) return {};
    return found->second;
  }

  void answer(const Transport& transport, int from, const std::vector<char>& question) {
    const Read asked = read(question);
    if (asked.kind == Envelope::Kind::put) put(asked.key, asked.value);
    const std::optional<std::string> found = find(asked.key);
    const bool tells = found && asked.kind == Envelope::Kind::get;
    send(transport, from, answer_tag(transport),
         message(found ? Envelope::Kind::found : Envelope::Kind::missing, asked.number, "",
                 tells ? *found : ""),
         Clock::now() + Store::answer_limit());
  }

  /// Looks for questions; the longer nobody asks the less often.
  void serve(const Transport& transport) {
    constexpr std::chrono::microseconds shortest{50}, longest{2000};
    int failures = 0;
    for (auto pause = shortest; !stop.load();) {
      try {
        if (const auto asked =
                receive(transport, question_tag(transport), Clock::now() + Store::answer_limit())) {
          answer(transport, asked->first, asked->second);
          pause = shortest;
          continue;
        }
      } catch (const Error&) {
        if (++failures > 100) return;  // no message comes any more: others find no answer
      } catch (...) {                  // no memory: who asked finds no answer, who asks next may
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, longest);
    }
  }
};

/// On the others.
class Asking {
 public:
  explicit Asking(const Transport& transport) : transport_(transport) {}
  Read ask(Envelope::Kind kind, const std::string& key, const std::string& value) {
    const std::scoped_lock lock(guard_);
    const auto until = Clock::now() + Store::answer_limit();
    send(transport_, 0, question_tag(transport_), message(kind, ++asked_, key, value), until);
    while (true) {
      if (const auto came = receive(transport_, answer_tag(transport_), until)) {
        Read answer = read(came->second);
        if (answer.number == asked_) return answer;
        continue;  // of a question that was given up
      }
      if (Clock::now() > until)
        throw Error(ErrorCode::unavailable, "the processes' store: process 0 does not answer");
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  const Transport& transport_;
  Mutex guard_;
  std::uint64_t asked_ = 0;
};

class StoreOfProcesses final : public Store {
 public:
  explicit StoreOfProcesses(const JoinedCluster& cluster) {
    if (cluster.rank() != 0) {
      asking_ = std::make_unique<Asking>(*cluster.transport());
      return;
    }
    keeper_ = std::make_unique<Keeper>();
    if (const Transport* const transport = cluster.transport())
      keeper_->thread = std::thread([this, transport] { keeper_->serve(*transport); });
  }
  void end() {
    if (!keeper_) return;
    keeper_->stop.store(true);
    if (keeper_->thread.joinable()) keeper_->thread.join();
  }

  void put(const std::string& key, const std::string& value) override;
  std::optional<std::string> try_get(const std::string& key) override;
  std::string get(const std::string& key, std::chrono::milliseconds limit) override;

 private:
  std::unique_ptr<Keeper> keeper_;  // on process 0
  std::unique_ptr<Asking> asking_;  // on the others
};

void StoreOfProcesses::put(const std::string& key, const std::string& value) {
  if (keeper_) return keeper_->put(key, value);
  asking_->ask(Envelope::Kind::put, key, value);
}

std::optional<std::string> StoreOfProcesses::try_get(const std::string& key) {
  if (keeper_) return keeper_->find(key);
  Read answer = asking_->ask(Envelope::Kind::get, key, "");
  if (answer.kind == Envelope::Kind::missing) return {};
  return std::move(answer.value);
}

std::string StoreOfProcesses::get(const std::string& key, std::chrono::milliseconds limit) {
  const auto until = host::after(limit);
  auto pause = std::chrono::microseconds(200);
  while (true) {
    if (std::optional<std::string> found = try_get(key)) return std::move(*found);
    if (Clock::now() >= until)
      throw Error(ErrorCode::deadline_exceeded,
                  fmt::format("the processes' store: nobody has put '{}' within {} ms", key,
                              limit.count()));
    if (keeper_) {
      std::unique_lock lock(keeper_->guard);
      keeper_->more.wait_until(lock, until, [&] { return keeper_->texts.contains(key); });
      continue;
    }
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, until - Clock::now()));
    pause = std::min(pause * 2, std::chrono::microseconds(5000));
  }
}

}  // namespace

Store& JoinedCluster::store() {
  static StoreOfProcesses* const store = [this] {
    auto* const made = new StoreOfProcesses(*this);  // threads may ask to the end
    // Before the transport ends, which began earlier.
    static StoreOfProcesses* const at_end = made;
    std::atexit([] { at_end->end(); });
    return made;
  }();
  return *store;
}

}  // namespace postern::internal::clusters
