// HostSite: a site ready for the hot path. What is known before a run is worked out here.
#pragma once
#include "core/site_spec.h"

namespace postern::internal::host {

struct Stage;

struct HostSite {
  /// Takes as `function` the site's own, or what its name meant when the run started.
  HostSite(SitePtr spec, std::shared_ptr<const detail::HostFunction> function);

  /// Takes the function that serves a site named so far.
  void serve(std::shared_ptr<const detail::HostFunction> found);

  /// What a function is told of where it runs, by device of the site's mesh.
  struct Position {
    std::vector<std::int64_t> coordinates;
    std::vector<IndexRange> part;
    bool repeats = false;  // a tap that another device or process fires
  };
  const Position& position(int device) const;
  /// Returns what a function on a device is told, as far as the site knows it.
  TapInfo info(int device, detail::StopState* stop) const;
  std::size_t position_of(int device) const;  // its place in `positions`, or behind them
  std::vector<IndexRange> part_over_processes(std::size_t device) const;

  /// Returns whether nobody listens at a live hook. An invocation then takes its turn, if any.
  bool is_disabled() const {
    return enabled && !enabled->load(std::memory_order_relaxed) && !one_order();
  }
  /// Returns whether it has one order over all devices of a run.
  bool one_order() const { return spec->one_order && !positions.empty(); }

  /// Returns whether a function of the user's is entered while XLA waits for it. What a program
  /// does that has no such site concerns nobody but who waits for its results.
  bool enters_at_once() const {
    const bool disabled = enabled && !enabled->load(std::memory_order_relaxed);
    return !spec->tap.async && !is_ours && !disabled;
  }

  SitePtr spec;
  std::shared_ptr<const Stage> stages;  // see host/stage
  bool direct = false;                  // the site asks for none of them
  // The handler may take its short way: it is direct, has few buffers, and none of the following.
  bool fast_path = false;
  bool wants_info = false;  // of the invocation: the function takes a CallInfo or TapInfo
  bool fetched = false;  // an asynchronous tap at whose leaves nobody looks before it is delivered
  bool is_ours = false;  // no user's function: it is for residuals of loops, or meets processes
  // Of a live hook that has no listener of its own: whether any was turned on.
  const std::atomic<bool>* enabled = nullptr;
  std::size_t operands = 0, results = 0;
  // Of the equation: operands and the mask if any; these and the results.
  std::size_t inputs = 0, buffers = 0;
  static constexpr std::size_t few = 32;   // buffers that need no allocation
  std::vector<detail::LeafLayout> leaves;  // of one invocation: operands, then results
  void (*invoke)(void* object, const detail::Firing& firing) = nullptr;  // of the function
  void* object = nullptr;
  detail::Declared declared;  // members of the spec
  // Null: a name that is looked up when a run starts.
  std::shared_ptr<const detail::HostFunction> function;
  // What the function is given: of a started call not the site's own leaves.
  std::vector<detail::LeafLayout> called;
  std::vector<std::size_t> called_bytes;
  std::uint64_t place_number = 0;       // of a started call, by which handles know it
  std::vector<std::size_t> leaf_bytes;  // of one invocation
  // Of the equation's operands and results, one byte an element at least.
  std::vector<std::size_t> buffer_bytes;

  std::vector<Position> positions;
  Position here;  // where there is no mesh
};

}  // namespace postern::internal::host
