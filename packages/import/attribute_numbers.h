// Numbers in the attributes of custom calls, from bytes and from MLIR's text: the same either way.
#pragma once
#include <postern/attributes.h>

#include <optional>
#include <string_view>

namespace postern::internal::imported {

/// Returns as many elements of a type ("i64", "f32") that host functions can be given: integers or
/// reals. Bytes of one element, `size` of them, are for all.
std::optional<Attribute> numbers_of_bytes(std::string_view element, std::string_view bytes,
                                          std::size_t size, std::size_t count);

/// Returns whether a constant of one value for so many elements is given as a list.
bool is_listed(std::size_t count, std::size_t bytes);

/// Reads `3 : i64`, `2.5 : f64`, `array<i64: 1, 2>`, `dense<[1, 2]> : tensor<2xi64>`.
std::optional<Attribute> numbers_of_text(std::string_view value);

/// Throws Error for what says that a program is for several devices: the attribute of a module that
/// counts them, or the groups of a collective. XLA divides by the size of those of `operation`
/// all_to_all.
void require_one_device(std::string_view operation, std::string_view name,
                        const std::optional<Attribute>& value);
inline constexpr std::string_view says_devices[] = {"mhlo.num_partitions", "mhlo.num_replicas",
                                                    "replica_groups", "source_target_pairs"};

}  // namespace postern::internal::imported
