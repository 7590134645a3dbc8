// What listens at hooks while a function is traced or run operation by operation.
#pragma once
#include <postern/hook.h>

#include <span>

#include "core/scoped.h"

namespace postern::internal {

/// Bindings for the hooks that this thread meets while the scope lives. Scopes nest: an outer one
/// decides before an inner one, up to one that is isolated.
class HookScope : Scoped<HookScope*> {
 public:
  /// Opens the scope. `live`: whether all hooks are.
  HookScope(std::span<const HookBinding> bindings, bool isolated, bool live = false);

  /// Returns the hooks that were met, each place and type once.
  const std::vector<HookInfo>& met() const { return met_; }
  /// Throws TypeError naming the bindings that no hook was met for, and the hooks that were.
  void check_known(const HookRules& rules) const;

 private:
  friend const Callee* detail::listener(const TapOptions&, const detail::Shown&, const Callee*,
                                        const Place&);
  friend bool detail::is_live(const TapOptions&);
  void meet(const HookInfo& info);
  HookScope* next() const { return isolated_ ? nullptr : before(); }  // that hooks in it see

  std::span<const HookBinding> bindings_;
  bool isolated_, live_;
  std::vector<HookInfo> met_;
};

}  // namespace postern::internal
