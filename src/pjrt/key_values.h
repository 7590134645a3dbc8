// What the clients of several processes tell each other by.
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "core/scoped.h"

struct PJRT_Client_Create_Args;

namespace postern::internal::pjrt {

/// Called from XLA's threads too; what they throw is XLA's error.
struct KeyValues {
  std::function<void(const std::string& key, const std::string& value)> put;
  std::function<std::optional<std::string>(const std::string& key)> try_get;
  /// Waits for the key so long.
  std::function<std::string(const std::string& key, std::chrono::milliseconds limit)> get;
};

/// While it lives, a client that this thread makes is a node of several, which speak by the store;
/// the store must live as long as the client.
class KeyValueScope : Scoped<const KeyValues*> {
 public:
  explicit KeyValueScope(const KeyValues& store);
};
/// Names the store of the thread's KeyValueScope, if there is one.
void give_key_values(PJRT_Client_Create_Args& args);

}  // namespace postern::internal::pjrt
