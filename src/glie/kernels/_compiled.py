"""Compiled inner loops. Only functions import this module: importing `glie` loads no numba.

Every function releases the GIL and works on one range of pages, so plain Python threads run them
in parallel (numba's own thread pool aborts when two threads enter it at once). Vectors come as
raw bits: float32 as uint32 with shift 0, bfloat16 as uint16 with shift 16, since a
bfloat16 is the upper half of a float32; numbers of 8 bits or fewer as bytes. `REASSOCIATE` lets
sums be vectorised; it keeps the meaning of infinity, which padding relies on.
"""

import numpy as np
from numba import config, njit

from glie.errors import GlieError

if config.DISABLE_JIT:
    raise GlieError(
        "NUMBA_DISABLE_JIT: found 1, but this much work needs compiled loops; unset the variable"
    )

from glie.kernels._levels import split_1, split_2, split_4, split_8
from glie.kernels._tiles import LANES, ROWS, address, copy_bytes, score_floats, widen_halves
from glie.kernels.loop_cache import cache_of

REASSOCIATE = {"reassoc", "contract", "nsz", "arcp"}


def _compile(function, **more):
    """Compile on first use, and keep the result: see kernels/loop_cache.py."""
    loop = _njit(function, **more)
    loop._cache = cache_of(function)
    return loop


def _inner(function, **more):
    """Compile for other loops, not for Python: what is kept of those includes it."""
    return _njit(function, no_cpython_wrapper=True, **more)


def _njit(function, **more):
    options = {"nogil": True, "fastmath": REASSOCIATE, "error_model": "numpy", **more}
    return njit(no_cfunc_wrapper=True, **options)(function)


def _inline(function):
    """Compile inline into every caller."""
    return _inner(function, forceinline=True)


@_inline
def sums(best, token_offsets, page, scores):
    """scores[q, page] = the sum of `best` over the tokens of q."""
    for q in range(token_offsets.shape[0] - 1):
        total = np.float32(0)
        # unsigned: numba checks signed indexes for negative values
        for t in range(np.uint64(token_offsets[q]), np.uint64(token_offsets[q + 1])):
            total += best[t]
        scores[q, page] = total


@_inline
def unpack_levels(packed, size, bits, dim, levels):
    """Unpack the `size` bytes of a row to levels, both given by address. Returns 1 / length of the
    vector of odd integers 2 * level - top that they stand for."""
    if bits == 8:
        above = split_8(packed, size, levels)
    elif bits == 4:
        above = split_4(packed, size, levels)
    elif bits == 2:
        above = split_2(packed, size, levels)
    else:
        above = split_1(packed, size, levels)
    # (2 level - top)^2 = top^2 - 4 level (top - level), in whole numbers: the two nearly cancel
    top = (1 << bits) - 1
    return np.float32(1) / np.sqrt(np.float32(dim * top * top - 4 * above))


@_compile
def maxsim_range(tokens, token_offsets, stored, size, bits, dim, starts, ends, first, last, scores):
    """scores[q, p] for the pages first..last: sum over q's tokens of the best dot with p's rows.

    tokens[g, :, l] is token g * lanes + l. `stored` is the address of rows of `size` bytes, whose
    numbers are floats (32 bits), the upper halves of floats (16) or levels (8 and fewer). Rows are
    taken by four, of which the last repeats where there are fewer: that changes no maximum. Each
    product is summed in the same order in any tile: a page's score depends on that page alone.
    """
    groups, numbers, lanes = tokens.shape
    top = (1 << bits) - 1
    wide = numbers * bits // 8
    padded = np.zeros(wide, np.uint8)
    levels = np.empty(numbers, np.uint8)
    rows = np.zeros((ROWS, numbers), np.float32)
    scales = np.ones(ROWS, np.float32)
    offsets = np.zeros(lanes, np.float32)
    best = np.empty(groups * lanes, np.float32)
    for page in range(first, last):
        best[:] = -np.inf
        for row in range(starts[page], ends[page], ROWS):
            four = address(rows)
            if bits == 32 and row + ROWS <= ends[page]:
                four = stored + row * size
            else:
                for lane in range(ROWS):
                    source = stored + min(row + lane, ends[page] - 1) * size
                    if bits == 32:
                        copy_bytes(source, four + lane * size, size)
                    elif bits == 16:
                        widen_halves(source, numbers, four + 4 * lane * numbers)
                    else:
                        if size < wide:
                            copy_bytes(source, address(padded), size)
                            source = address(padded)
                        scales[lane] = unpack_levels(source, wide, bits, dim, address(levels))
                        for d in range(numbers):
                            rows[lane, d] = np.float32(2) * np.float32(levels[d]) - np.float32(top)
            for g in range(groups):
                score_floats(
                    lanes // LANES,
                    four,
                    numbers,
                    address(tokens) + 4 * g * numbers * lanes,
                    address(offsets),
                    address(scales),
                    address(best) + 4 * g * lanes,
                )
        sums(best, token_offsets, page, scores)


@_inner
def _next_uniform(state):
    """One step of a 64-bit linear congruential generator; the top 53 bits as a float in [0, 1)."""
    state[0] = state[0] * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    return np.float64(state[0] >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@_inner
def _distances_to_four(x, rows, nearest, distances, totals):
    """distances[t, i] = min(nearest[i], |x_i - x_rows[t]|^2), by differences: exactly zero for
    identical rows. Fills `totals` with the four sums."""
    r0, r1, r2, r3 = rows[0], rows[1], rows[2], rows[3]
    for i in range(x.shape[0]):
        a = np.float32(0)
        b = np.float32(0)
        c = np.float32(0)
        e = np.float32(0)
        for d in range(x.shape[1]):
            v = x[i, d]
            s0 = v - x[r0, d]
            s1 = v - x[r1, d]
            s2 = v - x[r2, d]
            s3 = v - x[r3, d]
            a += s0 * s0
            b += s1 * s1
            c += s2 * s2
            e += s3 * s3
        distances[0, i] = min(nearest[i], a)
        distances[1, i] = min(nearest[i], b)
        distances[2, i] = min(nearest[i], c)
        distances[3, i] = min(nearest[i], e)
    for t in range(4):
        totals[t] = 0
        for i in range(x.shape[0]):
            totals[t] += distances[t, i]


@_inner
def _seed(x, k, state, centroids):
    """Greedy k-means++: each seed is the best of four rows drawn by squared distance.

    Stops when every row already is a seed, so identical rows never make two clusters. Returns
    the number of seeds.
    """
    n = x.shape[0]
    nearest = np.empty(n, np.float32)
    nearest[:] = np.inf
    distances = np.empty((4, n), np.float32)
    totals = np.empty(4, np.float64)
    rows = np.empty(4, np.int64)
    total = 0.0
    rows[:] = min(int(_next_uniform(state) * n), n - 1)
    for j in range(k):
        if j > 0:
            for t in range(4):
                target = _next_uniform(state) * total
                running = 0.0
                for i in range(n):
                    if nearest[i] > 0:
                        running += nearest[i]
                        rows[t] = i
                        if running > target:
                            break
        _distances_to_four(x, rows, nearest, distances, totals)
        chosen = 0
        for t in range(1, 4):
            chosen = t if totals[t] < totals[chosen] else chosen
        for d in range(x.shape[1]):
            centroids[j, d] = x[rows[chosen], d]
        for i in range(n):
            nearest[i] = distances[chosen, i]
        total = totals[chosen]
        if total <= 0.0:
            return j + 1
    return k


@_inner
def _score_moved(x, centroids, moved, n_moved, packed, similarity):
    """similarity[j, i] = x_i . c_j - |c_j|^2 / 2 for the centroids that moved: the nearest
    centroid has the largest value, and |x_i - c_j|^2 = |x_i|^2 - 2 similarity[j, i].

    The moved centroids are packed side by side in fours, so a row is loaded once for four products.
    Spare places repeat the last one."""
    n, dim = x.shape
    places = -(-n_moved // 4) * 4
    for place in range(places):
        j = moved[min(place, n_moved - 1)]
        for d in range(dim):
            packed[place, d] = centroids[j, d]
    half = np.empty(4, np.float32)
    for first in range(0, places, 4):
        for lane in range(4):
            square = np.float32(0)
            for d in range(dim):
                square += packed[first + lane, d] * packed[first + lane, d]
            half[lane] = np.float32(0.5) * square
        j0 = moved[first]
        j1 = moved[min(first + 1, n_moved - 1)]
        j2 = moved[min(first + 2, n_moved - 1)]
        j3 = moved[min(first + 3, n_moved - 1)]
        for i in range(n):
            a = np.float32(0)
            b = np.float32(0)
            c = np.float32(0)
            e = np.float32(0)
            for d in range(dim):
                v = x[i, d]
                a += v * packed[first, d]
                b += v * packed[first + 1, d]
                c += v * packed[first + 2, d]
                e += v * packed[first + 3, d]
            similarity[j0, i] = a - half[0]
            similarity[j1, i] = b - half[1]
            similarity[j2, i] = c - half[2]
            similarity[j3, i] = e - half[3]


@_inner
def _lloyd(x, used, iterations, centroids, labels, counts):
    """Lloyd's iterations from the seeds in centroids[:used]; returns sum of |x_i - c_label|^2.

    A centroid whose members did not change keeps its similarities. An emptied cluster takes the row
    with the worst match. The returned centroids are the means of the returned labels.
    """
    n, dim = x.shape
    similarity = np.empty((used, n), np.float32)
    packed = np.empty((used + 3, dim), np.float32)
    best = np.empty(n, np.float32)
    previous = np.empty(n, np.int32)
    moved = np.empty(used, np.int64)
    dirty = np.empty(used, np.bool_)
    for j in range(used):
        moved[j] = j
    n_moved = used
    labels[:] = -1
    for _ in range(iterations):
        _score_moved(x, centroids, moved, n_moved, packed, similarity)
        for i in range(n):
            previous[i] = labels[i]
            best[i] = similarity[0, i]
            labels[i] = 0
        for j in range(1, used):
            for i in range(n):
                if similarity[j, i] > best[i]:
                    best[i] = similarity[j, i]
                    labels[i] = j
        counts[:] = 0
        for i in range(n):
            counts[labels[i]] += 1
        for j in range(used):
            if counts[j] == 0:
                worst = -1
                for i in range(n):
                    if counts[labels[i]] > 1 and (worst < 0 or best[i] < best[worst]):
                        worst = i
                counts[labels[worst]] -= 1
                labels[worst] = j
                counts[j] = 1
                best[worst] = np.inf
        dirty[:] = False
        changed = 0
        for i in range(n):
            if labels[i] != previous[i]:
                changed += 1
                dirty[labels[i]] = True
                if previous[i] >= 0:
                    dirty[previous[i]] = True
        if changed == 0:
            break
        n_moved = 0
        for j in range(used):
            if dirty[j]:
                moved[n_moved] = j
                n_moved += 1
                for d in range(dim):
                    centroids[j, d] = 0
        for i in range(n):
            j = labels[i]
            if dirty[j]:
                for d in range(dim):
                    centroids[j, d] += x[i, d]
        for m in range(n_moved):
            j = moved[m]
            share = np.float32(1.0 / counts[j])
            for d in range(dim):
                centroids[j, d] *= share
    objective = 0.0
    for i in range(n):
        row = np.float32(0)
        for d in range(dim):
            step = x[i, d] - centroids[labels[i], d]
            row += step * step
        objective += row
    return objective


@_compile
def kmeans_range(
    vectors, offsets, k, restarts, iterations, seed, first, last, centroids, counts, objectives
):
    """The best of `restarts` runs for each of the pages first..last, largest cluster first.

    Every page starts from the same seed, so a page gives the same code alone and in a batch.
    """
    dim = vectors.shape[1]
    state = np.empty(1, np.uint64)
    trial_centroids = np.empty((k, dim), np.float32)
    trial_counts = np.empty(k, np.int64)
    best_centroids = np.empty((k, dim), np.float32)
    best_counts = np.empty(k, np.int64)
    for page in range(first, last):
        x = vectors[offsets[page] : offsets[page + 1]]
        labels = np.empty(x.shape[0], np.int32)
        state[0] = seed
        best = np.inf
        best_counts[:] = 0
        for _ in range(restarts):
            trial_counts[:] = 0
            used = _seed(x, k, state, trial_centroids)
            objective = _lloyd(x, used, iterations, trial_centroids, labels, trial_counts)
            if objective < best:
                best = objective
                for j in range(k):
                    best_counts[j] = trial_counts[j]
                    for d in range(dim):
                        best_centroids[j, d] = trial_centroids[j, d]
        for slot in range(k):
            largest = 0
            for j in range(1, k):
                largest = j if best_counts[j] > best_counts[largest] else largest
            count = best_counts[largest]
            counts[page, slot] = count
            for d in range(dim):
                centroids[page, slot, d] = best_centroids[largest, d] if count else np.float32(0)
            best_counts[largest] = 0 if count else -1
        objectives[page] = best
