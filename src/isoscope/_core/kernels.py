"""Inner loops over rows and tiles, which numba compiles on first use and caches on disk.

The functions release the GIL and use no Python objects. `pairs` and `sketch` call them on tiles from a pool of ordinary
threads, so numba starts no threads of its own.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_FASTMATH = {"reassoc", "contract"}  # sums may be reordered into vector lanes; NaN and infinity keep their meaning


@njit(cache=True, nogil=True, fastmath=_FASTMATH, inline="never")
def squared_distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return ‖a−b‖², computed from coordinate differences to avoid the cancellation in ‖a‖²+‖b‖²−2ab."""
    total = 0.0
    for p in range(a.shape[0]):
        step = np.float64(a[p]) - np.float64(b[p])
        total += step * step
    return total


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def pairwise_squared_distances(X, out):  # type: ignore[no-untyped-def]
    """Compute all squared distances between a few rows from coordinate differences, without starting BLAS threads."""
    n, d = X.shape
    for i in range(n):
        out[i, i] = 0
        for j in range(i):
            total = out[i, i]
            for p in range(d):
                step = X[i, p] - X[j, p]
                total += step * step
            out[i, j] = out[j, i] = total


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def products_to_squared_distances(products, left, right, left_norms, right_norms, near):  # type: ignore[no-untyped-def]
    """Convert a tile of inner products into squared distances, in place.

    If two points are so close that the three terms cancel (to less than `near` times their size), use the difference of
    the raw rows `left` and `right` instead. The products were computed from centered rows, which are rounded.
    """
    rows, columns = products.shape
    for i in range(rows):
        norm = left_norms[i]
        close = 0
        for j in range(columns):
            size = norm + right_norms[j]
            value = size - 2 * products[i, j]
            products[i, j] = value
            close += value <= near * size
        if close:
            for j in range(columns):
                if products[i, j] <= near * (norm + right_norms[j]):
                    products[i, j] = squared_distance(left[i], right[j])


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _sum(row):  # type: ignore[no-untyped-def]
    """Return the sum of a row, in a separate loop that the compiler can vectorize."""
    total = row[0] * 0
    for j in range(row.shape[0]):
        total += row[j]
    return total


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def add_cluster_distances(squared, row_starts, column_starts, by_row, by_column):  # type: ignore[no-untyped-def]
    """Add a tile's distances to the sums of each row and each column, separately for each cluster.

    Rows and columns are sorted by cluster; cluster c of this tile lies at starts[c]:starts[c + 1].
    """
    for a in range(row_starts.shape[0] - 1):
        column = by_column[a]
        for i in range(row_starts[a], row_starts[a + 1]):
            row = squared[i]
            for j in range(row.shape[0]):
                distance = np.sqrt(row[j])
                row[j] = distance
                column[j] += distance
            for b in range(column_starts.shape[0] - 1):
                by_row[i, b] += _sum(row[column_starts[b] : column_starts[b + 1]])


@njit(cache=True, nogil=True)
def _sift(distances, indices, value, index):  # type: ignore[no-untyped-def]
    """Replace the root of a heap, which is its largest pair (distance, index)."""
    k = distances.shape[0]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= k:
            break
        other = child + 1
        if other < k and (
            distances[other] > distances[child]
            or (distances[other] == distances[child] and indices[other] > indices[child])
        ):
            child = other
        if distances[child] < value or (distances[child] == value and indices[child] < index):
            break
        distances[at] = distances[child]
        indices[at] = indices[child]
        at = child
    distances[at] = value
    indices[at] = index


# Each row has a list of the nearest points so far, with room for more than k of them: `distances` and `indices`, of
# which `counts` entries are used. When the list is full, it is reduced to the k nearest points, and the farthest of
# these becomes the limit for further points: `limits`, and `last`, its index. Among equal distances, lower indices are
# nearer. The loops over a tile index whole arrays, because each view of a row costs an atomic reference count.


@njit(cache=True, nogil=True)
def _kth_bound(values, k):  # type: ignore[no-untyped-def]
    """Return a bound that at least k of the values do not exceed, by bisection; exactly k, unless values are equal."""
    low = high = np.float64(values[0])
    for p in range(values.shape[0]):
        low = min(low, np.float64(values[p]))
        high = max(high, np.float64(values[p]))
    if _count_within(values, low) >= k:
        return low
    while True:
        middle = low + (high - low) / 2
        if middle <= low or middle >= high:
            return high
        count = _count_within(values, middle)
        if count == k:
            return middle
        if count < k:
            low = middle
        else:
            high = middle


@njit(cache=True, nogil=True)
def _count_within(values, bound):  # type: ignore[no-untyped-def]
    total = 0
    for p in range(values.shape[0]):
        total += values[p] <= bound
    return total


@njit(cache=True, nogil=True)
def _farthest(distances, indices):  # type: ignore[no-untyped-def]
    """Return the position of the farthest point, in loops without branches."""
    largest = distances[0]
    for p in range(distances.shape[0]):
        largest = max(largest, distances[p])
    index = np.int64(-1)
    for p in range(distances.shape[0]):
        index = max(index, indices[p] if distances[p] == largest else np.int64(-1))
    at = 0
    for p in range(distances.shape[0]):
        at = p if distances[p] == largest and indices[p] == index else at
    return at


@njit(cache=True, nogil=True, inline="never")
def _reduce_list(k, distances, indices, counts, limits, last, row):  # type: ignore[no-untyped-def]
    """Reduce the list of a row to its k nearest points, and set the limit below which further points enter it."""
    values, numbers = distances[row, : counts[row]], indices[row, : counts[row]]
    bound = _kth_bound(values, k)
    kept = 0
    for p in range(values.shape[0]):
        value, number = values[p], numbers[p]
        values[kept], numbers[kept] = value, number
        kept += value <= bound
    at = _farthest(values[:kept], numbers[:kept])
    while kept > k:  # several points are at the same distance
        kept -= 1
        values[at], numbers[at] = values[kept], numbers[kept]
        at = _farthest(values[:kept], numbers[:kept])
    counts[row] = kept
    limits[row], last[row] = values[at], numbers[at]


@njit(cache=True, nogil=True)
def reduce_lists(k, distances, indices, counts, limits, last):  # type: ignore[no-untyped-def]
    """Reduce each list with more than k points to the k nearest ones."""
    for row in range(counts.shape[0]):
        if counts[row] > k:
            _reduce_list(k, distances, indices, counts, limits, last, row)


@njit(cache=True, nogil=True)
def keep_nearest(squared, own, first_column, k, distances, indices, counts, limits, last):  # type: ignore[no-untyped-def]
    """Update each row's list of its k nearest points with the points in a tile's columns; row i is point own[i].

    Few points of a tile enter a list, so they are marked first, and eight marks are checked at a time.
    """
    columns = squared.shape[1]
    words = np.zeros((columns + 7) // 8, np.uint64)
    marks = words.view(np.uint8)[:columns]
    for i in range(squared.shape[0]):
        limit = limits[i]
        for j in range(columns):
            marks[j] = squared[i, j] <= limit
        for word in range(words.shape[0]):
            if words[word]:
                for j in range(8 * word, min(8 * word + 8, columns)):
                    value, index = squared[i, j], first_column + j
                    if (value < limits[i] or (value == limits[i] and index < last[i])) and index != own[i]:
                        at = counts[i]
                        distances[i, at] = value
                        indices[i, at] = index
                        counts[i] = at + 1
                        if at + 1 == distances.shape[1]:
                            _reduce_list(k, distances, indices, counts, limits, last, i)


@njit(cache=True, nogil=True)
def keep_nearest_of_both(  # type: ignore[no-untyped-def]
    squared,
    first_row,
    first_column,
    k,
    row_distances,
    row_indices,
    row_counts,
    row_limits,
    row_last,
    column_distances,
    column_indices,
    column_counts,
    column_limits,
    column_last,
):
    """Update the lists of a tile's rows with its columns, and those of its columns with its rows, in one scan.

    Row i is point first_row + i, and column j is point first_column + j; no point is in both. See `keep_nearest`.
    """
    columns = squared.shape[1]
    width = row_distances.shape[1]
    words = np.zeros((columns + 7) // 8, np.uint64)
    marks = words.view(np.uint8)[:columns]
    for i in range(squared.shape[0]):
        limit = row_limits[i]
        for j in range(columns):
            marks[j] = (squared[i, j] <= limit) | (squared[i, j] <= column_limits[j])
        for word in range(words.shape[0]):
            if words[word]:
                for j in range(8 * word, min(8 * word + 8, columns)):
                    if not marks[j]:
                        continue
                    value, row, column = squared[i, j], first_row + i, first_column + j
                    if value < row_limits[i] or (value == row_limits[i] and column < row_last[i]):
                        at = row_counts[i]
                        row_distances[i, at] = value
                        row_indices[i, at] = column
                        row_counts[i] = at + 1
                        if at + 1 == width:
                            _reduce_list(k, row_distances, row_indices, row_counts, row_limits, row_last, i)
                    if value < column_limits[j] or (value == column_limits[j] and row < column_last[j]):
                        at = column_counts[j]
                        column_distances[j, at] = value
                        column_indices[j, at] = row
                        column_counts[j] = at + 1
                        if at + 1 == width:
                            _reduce_list(
                                k, column_distances, column_indices, column_counts, column_limits, column_last, j
                            )


@njit(cache=True, nogil=True)
def count_shared_neighbors(products, own, k, query_means, row_means, halves, inverse_lengths, shared):  # type: ignore[no-untyped-def]
    """Count the rows that two lists of the k best rows share: by cosine, inner product and Euclidean distance.

    `products` contains the inner products of queries and rows after subtracting the mean m: q·y. With x = q + m, the
    inner product with a row is q·y + m·y + x·m, in which `row_means` is m·y and `query_means` is x·m. `halves` is
    ‖y‖²/2, and `inverse_lengths` is 1/‖y + m‖. Query i is row own[i]. The columns of `shared` are the pairs (cosine,
    inner product), (cosine, Euclidean distance) and (inner product, Euclidean distance).
    """
    scores = np.empty((3, k))
    lists = np.empty((3, k), np.int64)
    for i in range(products.shape[0]):
        scores[:] = np.inf
        lists[:] = products.shape[1]
        for j in range(products.shape[1]):
            inner = np.float64(products[i, j])
            euclidean = halves[j] - inner
            inner += row_means[j]
            cosine = -(inner + query_means[i]) * inverse_lengths[j]
            if (cosine < scores[0, 0] or -inner < scores[1, 0] or euclidean < scores[2, 0]) and j != own[i]:
                if cosine < scores[0, 0]:
                    _sift(scores[0], lists[0], cosine, j)
                if -inner < scores[1, 0]:
                    _sift(scores[1], lists[1], -inner, j)
                if euclidean < scores[2, 0]:
                    _sift(scores[2], lists[2], euclidean, j)
        for pair in range(3):
            first, second = lists[pair // 2], lists[(pair + 3) // 2]
            for a in range(k):
                for b in range(k):
                    shared[i, pair] += first[a] == second[b]


@njit(cache=True, nogil=True)
def _mark_candidates(row, row_offset, column_offsets, row_worst, column_worst, marks):  # type: ignore[no-untyped-def]
    """Mark the columns that may enter a heap, in a separate loop that the compiler can vectorize."""
    for j in range(row.shape[0]):
        marks[j] = (column_offsets[j] - row[j] <= row_worst) | (row_offset - row[j] <= column_worst[j])


@njit(cache=True, nogil=True)
def keep_most_similar(  # type: ignore[no-untyped-def]
    products, row_offsets, column_offsets, first_row, first_column, by_row, row_indices, by_column, column_indices, own
):
    """Update the heaps of the most similar points of a tile's rows and, if there are any, of its columns.

    The distance of column j from row i is column_offsets[j] − products[i, j], and that of row i from column j is
    row_offsets[i] − products[i, j]. If `own`, a point is not compared with itself.
    """
    columns = products.shape[1]
    marks = np.zeros(-(-columns // 8) * 8, np.bool_)
    groups = marks.view(np.uint64)  # most groups of eight columns have no mark and are skipped
    column_worst = np.full(columns, -np.inf, products.dtype)
    for j in range(by_column.shape[0]):
        column_worst[j] = by_column[j, 0]
    for i in range(products.shape[0]):
        row = products[i]
        _mark_candidates(row, row_offsets[i], column_offsets, by_row[i, 0], column_worst, marks[:columns])
        for group in range(groups.shape[0]):
            if groups[group] == 0:
                continue
            for j in range(8 * group, min(8 * group + 8, columns)):
                at_row, at_column = first_row + i, first_column + j
                if not marks[j] or (own and at_row == at_column):
                    continue
                value = column_offsets[j] - row[j]
                if value < by_row[i, 0] or (value == by_row[i, 0] and at_column < row_indices[i, 0]):
                    _sift(by_row[i], row_indices[i], value, at_column)
                if by_column.shape[0] == 0:
                    continue
                value = row_offsets[i] - row[j]
                if value < column_worst[j] or (value == column_worst[j] and at_row < column_indices[j, 0]):
                    _sift(by_column[j], column_indices[j], value, at_row)
                    column_worst[j] = by_column[j, 0]


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def neighbor_distances(X, rows, distances, indices):  # type: ignore[no-untyped-def]
    """Compute the squared distances from the given rows to their neighbors, from coordinate differences.

    Four neighbors are read at the same time, because a neighbor is rarely in the cache.
    """
    last = indices.shape[1] - 1
    for i in range(rows.shape[0]):
        for j in range(0, last + 1, 4):
            a, b = indices[i, j], indices[i, min(j + 1, last)]
            c, d = indices[i, min(j + 2, last)], indices[i, min(j + 3, last)]
            to_a, to_b, to_c, to_d = 0.0, 0.0, 0.0, 0.0
            for p in range(X.shape[1]):
                value = np.float64(X[rows[i], p])
                step = value - np.float64(X[a, p])
                to_a += step * step
                step = value - np.float64(X[b, p])
                to_b += step * step
                step = value - np.float64(X[c, p])
                to_c += step * step
                step = value - np.float64(X[d, p])
                to_d += step * step
            distances[i, min(j + 3, last)] = to_d
            distances[i, min(j + 2, last)] = to_c
            distances[i, min(j + 1, last)] = to_b
            distances[i, j] = to_a


# An array that a kernel allocates adds up to 0.2 s to its compilation, so callers of the next three kernels pass
# their working memory: `key` starts as infinity, and `inside`, `starts` and `parent` start as zeros.


@njit(cache=True, nogil=True)
def prim_tree(squared, edges, weights, key, parent, inside):  # type: ignore[no-untyped-def]
    """Compute the minimum spanning tree of a complete graph, by Prim's algorithm."""
    n = squared.shape[0]
    current = 0
    inside[0] = True
    for step in range(n - 1):
        row = squared[current]
        best = -1
        least = key[0]
        for j in range(n):
            if not inside[j]:
                if row[j] < key[j]:
                    key[j] = row[j]
                    parent[j] = current
                if best < 0 or key[j] < least:
                    best, least = j, key[j]
        edges[step, 0], edges[step, 1], weights[step] = parent[best], best, least
        inside[best] = True
        current = best


@njit(cache=True, nogil=True)
def merge_block_trees(  # type: ignore[no-untyped-def]
    squared,
    transposed,
    left_tree,
    right_tree,
    left_weights,
    right_weights,
    edges,
    weights,
    key,
    parent,
    inside,
    starts,
    fill,
    others,
    lengths,
):
    """Compute the minimum spanning tree of two blocks, from all edges between them and the tree of each block.

    An edge inside a block that is not in the block's tree is in no larger tree either. Rows are nodes 0…m−1, columns
    are nodes m…m+p−1; each tree numbers the nodes of its block from 0. The algorithm is Prim's.
    """
    m, p = squared.shape
    n = m + p
    for e in range(left_tree.shape[0]):
        starts[left_tree[e, 0] + 1] += 1
        starts[left_tree[e, 1] + 1] += 1
    for e in range(right_tree.shape[0]):
        starts[m + right_tree[e, 0] + 1] += 1
        starts[m + right_tree[e, 1] + 1] += 1
    for v in range(n):
        fill[v] = starts[v]
        starts[v + 1] += starts[v]
    for e in range(left_tree.shape[0] + right_tree.shape[0]):
        if e < left_tree.shape[0]:
            a, b, w = left_tree[e, 0], left_tree[e, 1], left_weights[e]
        else:
            f = e - left_tree.shape[0]
            a, b, w = m + right_tree[f, 0], m + right_tree[f, 1], right_weights[f]
        others[fill[a]], lengths[fill[a]] = b, w
        fill[a] += 1
        others[fill[b]], lengths[fill[b]] = a, w
        fill[b] += 1

    current = 0
    inside[0] = True
    for step in range(n - 1):
        first = m if current < m else 0
        row = squared[current] if current < m else transposed[current - m]
        for j in range(row.shape[0]):
            if row[j] < key[first + j] and not inside[first + j]:
                key[first + j] = row[j]
                parent[first + j] = current
        for e in range(starts[current], starts[current + 1]):
            v = others[e]
            if lengths[e] < key[v] and not inside[v]:
                key[v] = lengths[e]
                parent[v] = current
        best = -1
        least = key[0]
        for v in range(n):
            if not inside[v] and (best < 0 or key[v] < least):
                best, least = v, key[v]
        edges[step, 0], edges[step, 1], weights[step] = parent[best], best, least
        inside[best] = True
        current = best


@njit(cache=True, nogil=True)
def _root(parent, v):  # type: ignore[no-untyped-def]
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@njit(cache=True, nogil=True)
def kruskal_tree(edges, order, parent, kept):  # type: ignore[no-untyped-def]
    """Keep the edges that join two trees (Kruskal's algorithm), given edges in order of length; return their number.

    `parent` starts as 0…n−1: each of the n nodes is a tree of its own.
    """
    n = parent.shape[0]
    count = 0
    for i in range(order.shape[0]):
        e = order[i]
        a, b = _root(parent, edges[e, 0]), _root(parent, edges[e, 1])
        if a != b:
            parent[a] = b
            kept[count] = e
            count += 1
            if count == n - 1:
                break
    return count


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def add_row_sums(X, pivot, keys, centered, norms, squares, hashes, sums):  # type: ignore[no-untyped-def]
    """Center and hash the rows x of a tile, and add them to the rows Σy, Σy², Σ‖y‖²y, Σu and Σu² of `sums`.

    Here y = x − pivot and u = x/‖x‖. For each row, also compute ‖x‖, ‖y‖² and a hash of the float64 values. A row that
    is not finite gets the norm NaN, y = 0 and the hash 0. A row whose squares are near the limits of float64 is not
    added to Σu and Σu², and its norm is infinite or inexact.
    """
    n, d = X.shape
    for i in range(n):
        size = 0.0
        square = 0.0
        for p in range(d):
            value = np.float64(X[i, p])
            y = value - pivot[p]
            centered[i, p] = y
            size += value * value
            square += y * y
        if not size < 1e280:
            for p in range(d):
                if not np.isfinite(X[i, p]):
                    size = np.nan
            if np.isnan(size):
                norms[i] = size
                squares[i] = 0.0
                hashes[i] = 0
                for p in range(d):
                    centered[i, p] = 0.0
                continue
        norms[i] = np.sqrt(size)
        squares[i] = square
        factor = 1 / norms[i] if 1e-140 < norms[i] < 1e140 else 0.0
        code = np.uint64(0)
        for p in range(d):
            value = np.float64(X[i, p])
            y = value - pivot[p]
            u = value * factor
            sums[0, p] += y
            sums[1, p] += y * y
            sums[2, p] += square * y
            sums[3, p] += u
            sums[4, p] += u * u
            word = np.float64(value + 0.0).view(np.uint64)  # + 0.0 makes −0 equal to 0
            word ^= word >> np.uint64(32)
            word *= keys[p]
            word ^= word >> np.uint64(32)
            word *= np.uint64(0x9E3779B97F4A7C15)
            code += word ^ (word >> np.uint64(29))
        code ^= code >> np.uint64(30)  # the splitmix64 finalizer mixes all 64 bits of the sum
        code *= np.uint64(0xBF58476D1CE4E5B9)
        code ^= code >> np.uint64(27)
        code *= np.uint64(0x94D049BB133111EB)
        hashes[i] = code ^ (code >> np.uint64(31))


@njit(cache=True, nogil=True)
def add_unit_vectors(X, codes, sums, counts, lengths):  # type: ignore[no-untyped-def]
    """Add the unit vector of each finite row to the sum of its type, and count the row."""
    for i in range(X.shape[0]):
        scale = _safe_scale(X[i])
        if np.isnan(scale):
            continue
        size = 0.0
        for p in range(X.shape[1]):
            size += (X[i, p] * scale) ** 2
        code = codes[i]
        counts[code] += 1
        if size > 0:
            factor = scale / np.sqrt(size)
            lengths[code] += 1.0
            for p in range(X.shape[1]):
                sums[code, p] += X[i, p] * factor


@njit(cache=True, nogil=True)
def _safe_scale(x):  # type: ignore[no-untyped-def]
    """Return a power of two that scales the largest value of x to about 1, or NaN if a value is not finite."""
    largest = 0.0
    for p in range(x.shape[0]):
        if not np.isfinite(x[p]):
            return np.nan
        largest = max(largest, abs(np.float64(x[p])))
    if largest == 0:
        return 1.0
    return 2.0 ** min(1000.0, max(-1000.0, -np.floor(np.log2(largest))))


@njit(cache=True, nogil=True)
def count_cosines(bits, shift, first, diagonal, counts, marks, squared, limits, beyond):  # type: ignore[no-untyped-def]
    """Count the squared distances of a tile in the bins of a `CosineHistogram`.

    `bits` views `squared` as integers, whose leading bits are the number of the bin. In a bin that contains the limit
    of a cosine, also count the pairs beyond this limit. In a tile on the diagonal, count only the entries above it.
    """
    last = counts.shape[0] - 1
    for i in range(squared.shape[0]):
        for j in range(i + 1 if diagonal else 0, squared.shape[1]):
            at = min(max((bits[i, j] >> shift) - first, 0), last)
            counts[at] += 1
            mark = marks[at]
            if mark < limits.shape[0] and squared[i, j] > limits[mark]:
                beyond[mark] += 1


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def _narrow_squared_distance(a, b):  # type: ignore[no-untyped-def]
    """Return ‖a−b‖², summed in the precision of the rows."""
    total = a[0] - a[0]
    for p in range(a.shape[0]):
        step = a[p] - b[p]
        total += step * step
    return total


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def place_rows(products, norms, lengths, rounding, codes, nearest, bounds):  # type: ignore[no-untyped-def]
    """Find the nearest center of each row, given the products of rows and centers, which are overwritten.

    `nearest` receives an upper bound of the distance to this center, and `bounds` a lower bound of the distance to each
    other center. `norms` and `lengths` are the squared lengths of rows and centers.
    """
    k = products.shape[1]
    for i in range(products.shape[0]):
        row, norm = products[i], norms[i]
        for c in range(k):
            row[c] = lengths[c] - (row[c] + row[c])
        own = 0
        for c in range(1, k):
            if row[c] < row[own]:
                own = c
        zero = norm - norm
        codes[i] = own
        nearest[i] = np.sqrt(max(norm + row[own] + rounding * (norm + lengths[own]), zero))
        for c in range(k):
            bounds[i, c] = np.sqrt(max(norm + row[c] - rounding * (norm + lengths[c]), zero))
        bounds[i, own] = np.inf


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def age_bounds(moves, codes, nearest, bounds, unsure):  # type: ignore[no-untyped-def]
    """Update the bounds of `place_rows` after each center moved by at most moves[c].

    Return the number of rows to which another center may be nearer, which are written to `unsure`, and the number of
    such pairs of a row and a center. `unsure` needs one more entry than there are rows.
    """
    rows = pairs = 0
    for i in range(bounds.shape[0]):
        farthest = nearest[i] + moves[codes[i]]
        nearest[i] = farthest
        close = 0
        for c in range(bounds.shape[1]):
            value = bounds[i, c] - moves[c]
            bounds[i, c] = value
            close += value < farthest
        unsure[rows] = i
        rows += close > 0
        pairs += close
    return rows, pairs


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def refresh_bounds(  # type: ignore[no-untyped-def]
    products, moved, norms, lengths, rounding, codes, nearest, bounds, unsure
):
    """Compute the bounds of the centers `moved` again, given their products with the rows, which are overwritten.

    Return the number of rows to which another center may be nearer, which are written to `unsure`.
    """
    rows = 0
    for i in range(products.shape[0]):
        row, norm, own = products[i], norms[i], codes[i]
        zero, farthest = norm - norm, nearest[i]
        for m in range(moved.shape[0]):
            if moved[m] == own:
                farthest = np.sqrt(max(norm + lengths[m] - (row[m] + row[m]) + rounding * (norm + lengths[m]), zero))
        for m in range(moved.shape[0]):
            row[m] = np.sqrt(max(norm + lengths[m] - (row[m] + row[m]) - rounding * (norm + lengths[m]), zero))
        for m in range(moved.shape[0]):
            bounds[i, moved[m]] = row[m]
        bounds[i, own] = np.inf
        nearest[i] = farthest
        close = 0
        for c in range(bounds.shape[1]):
            close += bounds[i, c] < farthest
        unsure[rows] = i
        rows += close > 0
    return rows


@njit(cache=True, nogil=True, fastmath=_FASTMATH)
def place_unsure_rows(X, centers, unsure, codes, nearest, bounds):  # type: ignore[no-untyped-def]
    """Find the nearest center of the rows `unsure`, from the distances to those centers that may be nearer."""
    for at in range(unsure.shape[0]):
        i = unsure[at]
        x, own = X[i], codes[i]
        best, least = own, _narrow_squared_distance(x, centers[own])
        to_own = near = np.sqrt(least)
        for c in range(centers.shape[0]):
            if bounds[i, c] < near:
                squared = _narrow_squared_distance(x, centers[c])
                bounds[i, c] = np.sqrt(squared)
                if squared < least:
                    best, least, near = c, squared, bounds[i, c]
        nearest[i] = near
        if best != own:
            bounds[i, own] = to_own
            bounds[i, best] = np.inf
            codes[i] = best


@njit(cache=True, nogil=True)
def add_changes(X, before, codes, sums, counts):  # type: ignore[no-untyped-def]
    """Update the sums and counts of the clusters for the rows that changed their cluster; return their number.

    A row that had no cluster before has −1 in `before`.
    """
    changes = 0
    for i in range(X.shape[0]):
        old, new = before[i], codes[i]
        if old == new:
            continue
        changes += 1
        counts[new] += 1
        for p in range(X.shape[1]):
            sums[new, p] += X[i, p]
        if old >= 0:
            counts[old] -= 1
            for p in range(X.shape[1]):
                sums[old, p] -= X[i, p]
    return changes
