// SPDX-License-Identifier: MIT
//
// Loaded kernels by key, made once.
//
// What: a map from key to shared value in which each value is made by one thread while the others
// that want it wait.
//
// When not: it never forgets; nothing here bounds its size.
//
// Example:
//     auto kernel = cache.get_or_create(key, [&] { return load(compile(source)); });
//
// Errors: what the factory throws reaches every thread that waited for it, and is not remembered:
// the next call tries again. A null result is an error. A factory that asks for its own key is an
// error, not a deadlock; two factories that ask for each other's keys in two threads do wait for
// ever. A thread that was not cancelled never sees another one's
// Interrupted: it runs its own factory.
// Thread-safety: all of it; no lock is held while a factory runs. A forked child keeps the finished
// values and makes those that were in the making itself.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "deep_jit/base/exception.hpp"
#include "deep_jit/base/single_flight.hpp"

namespace deep_jit {

template <class Key, class Value, class Hash = std::hash<Key>>
class MemoryCache {
 public:
  MemoryCache() = default;
  MemoryCache(const MemoryCache&) = delete;
  MemoryCache& operator=(const MemoryCache&) = delete;

  // The value, or null when it is not there yet. Never waits.
  std::shared_ptr<Value> find(const Key& key) const;

  // The value; made by `factory()` (a std::shared_ptr<Value>) when it is not there.
  template <class Factory>
  std::shared_ptr<Value> get_or_create(const Key& key, Factory&& factory);

  // Number of finished values.
  std::size_t size() const;

 private:
  // Runs the factory for a flight of this thread.
  template <class Factory>
  std::shared_ptr<Value> create(const Key& key, Factory&& factory,
                                const std::shared_ptr<Flight<Value>>& own);

  mutable std::mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<Value>, Hash> values_;
  std::unordered_map<Key, std::shared_ptr<Flight<Value>>, Hash> flights_;
};

// --- Inline implementations ---

template <class Key, class Value, class Hash>
std::shared_ptr<Value> MemoryCache<Key, Value, Hash>::find(const Key& key) const {
  std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : found->second;
}

template <class Key, class Value, class Hash>
std::size_t MemoryCache<Key, Value, Hash>::size() const {
  std::lock_guard lock(mutex_);
  return values_.size();
}

template <class Key, class Value, class Hash>
template <class Factory>
std::shared_ptr<Value> MemoryCache<Key, Value, Hash>::get_or_create(const Key& key,
                                                                    Factory&& factory) {
  for (;;) {
    std::shared_ptr<Flight<Value>> other;
    std::shared_ptr<Flight<Value>> own;
    {
      std::lock_guard lock(mutex_);
      if (const auto found = values_.find(key); found != values_.end()) {
        return found->second;
      }
      std::shared_ptr<Flight<Value>>& flight = flights_[key];
      if (flight != nullptr and flight->is_running()) {
        DJ_HOST_ASSERT(not flight->is_own(),
                       "a memory cache factory must not ask for the key that it makes");
        other = flight;
      } else {
        own = flight = std::make_shared<Flight<Value>>();
      }
    }
    if (own != nullptr) {
      return create(key, factory, own);
    }
    if (std::optional<std::shared_ptr<Value>> made = other->wait()) {
      return *std::move(made);
    }
  }
}

template <class Key, class Value, class Hash>
template <class Factory>
std::shared_ptr<Value> MemoryCache<Key, Value, Hash>::create(
    const Key& key, Factory&& factory, const std::shared_ptr<Flight<Value>>& own) {
  try {
    std::shared_ptr<Value> made = factory();
    DJ_HOST_ASSERT(made != nullptr, "memory cache factory must not return nullptr");
    {
      std::lock_guard lock(mutex_);
      values_.emplace(key, made);
      flights_.erase(key);
    }
    own->finish(made);
    return made;
  } catch (...) {
    {
      std::lock_guard lock(mutex_);
      if (const auto found = flights_.find(key); found != flights_.end() and found->second == own) {
        flights_.erase(found);
      }
    }
    own->fail();
    throw;
  }
}

}  // namespace deep_jit
