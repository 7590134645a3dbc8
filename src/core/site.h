// SiteSpec: all that is known at trace time of a place where a program calls back: a call, tap, hook or print.
#pragma once
#include <postern/call.h>
#include <postern/host.h>
#include <postern/sharding.h>

#include "core/params.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace postern {

struct SiteSpec;
using SitePtr = std::shared_ptr<const SiteSpec>;

/// One vmap over a site whose function runs for each element.
struct BatchLevel {
  std::int64_t size;
  std::vector<bool> mapped;  // by operand: has the axis of this level
};

/// What is counted of one place in a program, over all its runs.
struct SiteCounts {
  std::atomic<std::uint64_t> firings{0}, dropped{0};
};

struct SiteSpec {
  enum class Kind : std::uint8_t { call, tap } kind = Kind::call;
  const char* word = "call";  // in texts: call, tap, hook, print
  std::string name;
  Place place;

  std::shared_ptr<const detail::HostFunction> function;  // null: `named` is looked up when a run starts
  Named named;

  // What one firing sees. With `levels`, an operand or result of the equation has the axes of its levels in front, outermost first.
  std::vector<Type> operands;
  std::vector<Type> results;
  std::string operand_structure, result_structure;
  std::vector<std::string> operand_paths, result_paths;

  Effect effect = Effect::pure;
  std::chrono::nanoseconds timeout{0}, warn_after{0};
  VmapMethod vmap = VmapMethod::sequential;
  int device = -1;
  Memory memory = Memory::host;
  bool one_order = false;               // over all devices
  std::shared_ptr<const Mesh> mesh;     // in shard_map: what the operands are parts on
  std::optional<Sharding> partitioned;  // where the site asked to be cut
  std::optional<P> cut;                 // how the first operand is a part on the mesh, where that is known,
  Dims whole;                           // and of what

  std::vector<BatchLevel> levels;
  bool masked = false;  // the equation's last operand is pred, one for each element of the batch: which are alive
  std::int64_t mask_size = 0;

  // Taps only: results are the operands, unchanged.
  Transforms transforms;
  bool async = false, derivatives = false, recomputed = false;
  std::int64_t every = 1;              // only each so-manieth firing reaches the function
  std::int64_t keep_last = 0;          // async: undelivered firings that are kept, 0: all
  std::shared_ptr<SiteCounts> counts;  // where `every` or `keep_last` needs them

  bool from_file = false;  // so the program's text may not be what the site says

  void fields(FieldSink& sink) const;
};

/// Parameters of the one primitive behind call, tap, hook and print.
struct SiteParams {
  SitePtr site;
  void fields(FieldSink& sink) const { site->fields(sink); }
};

}  // namespace postern
