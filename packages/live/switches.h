// Switches: what clients turn on at live hooks. It ends with them.
#pragma once
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace postern::internal::host {
struct Listening;
}

namespace postern::internal::live {

class FileEnd;
struct WrittenFile;

class Switches {
 public:
  using Clock = std::chrono::steady_clock;
  /// Where files may be made; empty: nowhere. `anywhere`: by whole paths, and over what is there.
  struct Files {
    std::string folder;
    bool anywhere = false;
  };
  explicit Switches(Files files) : files_(std::move(files)) {}
  ~Switches();

  /// What a client asks for, as JSON:
  ///   {"on": HOOK, "listener": "stats", "every": 10}   a number for what is turned on
  ///   {"change": NUMBER, "every": 1}                   of a listener
  ///   {"own": HOOK, "every": 1}                        of the program's own one
  ///   {"off": NUMBER}
  ///   {"pending": NUMBER}     whether it may see something more, perhaps out of a queue; whether
  ///                           it finishes a file, also when it is off, and what failed there
  struct Answer {
    int status = 200;
    std::string json;
    std::weak_ptr<const WrittenFile> finishes = {};  // until it has gone the answer may wait
    bool changes = true;                             // perhaps, what pages show
  };
  Answer act(const std::string& client, std::string_view asked);

  /// Turns off others' listeners when they have been away for a while: a page that loads another
  /// stream is not gone. Lets go of those that were shown all that they want.
  void keep_only(const std::vector<std::string>& clients);
  /// Returns when the next of them is to be turned off.
  Clock::time_point next_end() const;

  static constexpr std::size_t most_listeners = 256;  // of all clients
  static constexpr std::chrono::seconds grace{3};

 private:
  struct One {
    std::uint64_t number = 0;
    std::shared_ptr<host::Listening> listening;  // null: it is over, and let go of
    std::weak_ptr<WrittenFile> file = {};
    std::shared_ptr<const FileEnd> end = {};  // of that
    bool off = false;                         // known for its file alone
  };
  struct Held {
    std::vector<One> listeners;
    Clock::time_point ends = Clock::time_point::max();
  };
  One& find(std::uint64_t number, bool also_off = false);
  std::weak_ptr<const WrittenFile> drop(std::uint64_t number);
  static void turn_off(const One& one);
  static bool is_over(const One& one);
  static bool is_pending(const One& one);
  static void let_go(One& one);
  static void let_go_of_spent(Held& held);

  const Files files_;
  std::map<std::string, Held> held_;
};

/// Returns what there is to turn on, and what is on, as an array.
nlohmann::json live_hooks_json();

}  // namespace postern::internal::live
